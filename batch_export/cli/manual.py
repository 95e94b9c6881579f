"""What `--help` says. Nothing goes in, text leaves; Hydra fills in the config groups, which it alone knows.

The text is not in the configuration itself: Hydra takes apart whatever stands there each time that it composes, and a
sweep would pay for a text that it does not show.
"""

from __future__ import annotations

from textwrap import wrap

from batch_export.cli.known import verbs

_COLUMN = 30
_WIDTH = 118

_TEXT = """\
batch_export: exports PyTorch models to ONNX over a matrix of cells and says which are right.

A cell is a model x dynamic-shape setting x opset x execution provider x exporter. Every cell is exported,
checked, run, compared with eager PyTorch and timed; every step is cached by content.

Commands (in place of `python -m batch_export`, `batch-export` works too)
  python -m batch_export +sweep=all                 the whole zoo: table, records, summary
  python -m batch_export +sweep=smoke               a few small models on every provider that runs anywhere
  python -m batch_export matrix.models=[bert_tiny,'vit*','tag:vision'] matrix.opsets=[18,21]
  python -m batch_export plan +sweep=all            a verb and its words; `VERB --help` says what it takes
  python -m batch_export -q +sweep=all              prints only what is not as expected
  python -m batch_export --last-failed              the last run again, only the cells that failed

Verbs
$verbs

Keys (defaults: --cfg job; all of them: docs/configuration.md)
  matrix.models        names, globs, tags ('tag:vision'), own (all models of your folders),
                       models of a collection ('transformers:bert.*')
  matrix.opsets        7 to 28 for our own exporter
  matrix.dynamic       static, full, auto, or axis names such as batch or batch+seq
  matrix.providers     configs of conf/provider         matrix.exporters   configs of conf/exporter
  matrix.exclude       [{model: 'gpt*', opset: 18, reason: why}]
  matrix.env           packages in other versions than here, for all models: [transformers==5.22.0]
  matrix.require_providers=true   a provider that is not installed is an error, not a skip
  runner.n_jobs, runner.timeout_s, runner.memory_gb, runner.threads, runner.retries; runner=dask
  runner.keep_alive=10m    the server that children come from stays for the next command; `stop` ends it
  measure.enabled, measure.budget_s, measure.refresh=missing|contended|always
  tolerances.<dtype>.atol, tolerances.<dtype>.rtol
  output.path (outputs), store.path (outputs/store), store.remote, store.verify=size|read|always

Your own models and exporters: a folder with model/NAME.yaml or exporter/NAME.yaml, given by --config-dir,
which may be given several times. They come before the shipped ones of their names.

Exit codes: 0 all as expected, 1 unexpected results or nothing tested, 2 usage or configuration,
3 the run could not finish, 130 interrupted.

== Configuration groups ==
$APP_CONFIG_GROUPS
"""


def help_text() -> str:
    """Returns the whole text of `--help`, with `$APP_CONFIG_GROUPS` where Hydra puts the groups and their configs."""
    return _TEXT.replace("$verbs", "\n".join(f"  {line}" for line in _verb_lines()))


def _verb_lines() -> list[str]:
    lines: list[str] = []
    for verb in verbs().values():
        texts = wrap(verb.summary, _WIDTH - _COLUMN - 2)
        if len(verb.usage) >= _COLUMN:
            lines.append(verb.usage)
        else:
            lines.append(f"{verb.usage:<{_COLUMN}}{texts.pop(0)}")
        lines += [" " * _COLUMN + text for text in texts]
    return lines

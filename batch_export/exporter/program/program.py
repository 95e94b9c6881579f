"""ONNXProgram: an exported model in memory, that runs on torch tensors and is saved to a file.

Arrives: the ONNX model, the exported program that it was made from, and how its outputs map to the program's. Leaves:
tensors, files, protos. Saving never changes the model: weights point into a file only while it is written.
"""

from __future__ import annotations

import io
import os
import shutil
import tempfile
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
import onnx_ir as ir
import torch

from batch_export.errors import SaveError
from batch_export.exporter.capture.block_expansion import expanded
from batch_export.exporter.functions.inlining import written_out
from batch_export.exporter.functions.making import Functions, make_functions
from batch_export.exporter.graph import torch_tensors, weights
from batch_export.exporter.graph.collector import young_only
from batch_export.exporter.graph.tensor_values import to_tensor, to_value
from batch_export.exporter.graph.torch_errors import OnnxExporterWarning
from batch_export.exporter.optimise import passes, weight_folding
from batch_export.exporter.program import adapters, checkpoint, listing, naming, told_once, writing
from batch_export.exporter.program.inference import ONNXRuntimeOptions
from batch_export.exporter.program.named_tensors import NamedTensors
from batch_export.exporter.program.nested_inputs import CallForm
from batch_export.exporter.program.outputs import Outputs
from batch_export.exporter.program.owned_model import OwnedModel
from batch_export.exporter.program.provenance import Provenance, Traceable
from batch_export.exporter.report.journal import Journal
from batch_export.numbers.values import Value
from batch_export.runtime.ort import NEWEST_OPSET, OrtSession
from batch_export.runtime.provider_spec import ProviderSpec
from batch_export.runtime.reference import ReferenceSession
from batch_export.runtime.structures import tensors

_CPU = ProviderSpec("cpu", "onnxruntime", "CPUExecutionProvider")


class ONNXProgram(Traceable, torch.onnx.ONNXProgram):
    """An exported model, which is an instance of torch's own class too: annotations and checks go on to hold.

    Attributes:
        model: the ONNX model as an `onnx_ir.Model`.
        provenance: how it came to be; its fields are also read here, under the same names.
        fold_weights: whether files get their weights folded (BatchNormalization merged into a convolution, transposed
            weights, ...). `model` keeps what they are made from, so other weights can be applied at any time.
        fold_growth: how much weights may grow by that, as a share of their bytes.
        folding: what was folded when a file was last written, and what was not; empty before.
        functions: which calls of modules are functions of the model, and which of those asked for are not.
        call_form: how the model was called at its export, where there is no exported program that says it.
    """

    def __init__(
        self,
        model: ir.Model,
        exported_program: torch.export.ExportedProgram | None,
        provenance: Provenance | None = None,
    ) -> None:
        self._owned = OwnedModel(model)
        self._captured = exported_program
        self.provenance = provenance or Provenance()
        self.fold_weights = True
        self.fold_growth = weight_folding.GROWTH
        self.folding: list[passes.PassReport] = []
        self.functions = Functions()
        self.call_form: CallForm | None = None
        self._session: Any = None
        self._cleanup: weakref.finalize[..., ONNXProgram] | None = None

    @property
    def model(self) -> ir.Model:
        """The ONNX model; who has it may change it."""
        return self._owned.handed_out()

    @model.setter
    def model(self, model: ir.Model) -> None:
        self._owned = OwnedModel(model)

    def keep_to_itself(self) -> None:
        """Says that nobody else has the model: until it is asked for, a file is made of it itself, not of a copy."""
        self._owned.is_handed_out = False

    def __getstate__(self) -> dict[str, Any]:
        """For copies, which have the same model."""
        self._owned.handed_out()
        return dict(vars(self))

    def __repr__(self) -> str:
        count = sum(1 for _ in self.model.graph.all_nodes())
        return f"ONNXProgram({self.model.graph.name!r}, {count} nodes, exporter={self.exporter!r})"

    def __str__(self) -> str:
        return "\n".join([f"ONNXProgram made by the exporter {self.exporter!r}", *listing.lines(self.model)])

    @property
    def exported_program(self) -> Any:  # ours is made when it is asked for
        """Torch's exported program that it was made from; None from the TorchScript exporter."""
        return None if self._captured is None else expanded(self._captured)

    @exported_program.setter
    def exported_program(self, program: torch.export.ExportedProgram | None) -> None:
        self._captured = program

    @property
    def _capture_strategy(self) -> str | None:  # type: ignore[override]  # torch's own is set, ours follows
        """What `torch.onnx.testing.assert_onnx_program` asks for: torch's name of the way of the capture."""
        return adapters.TORCH_STRATEGIES.get(self.captured.strategy) if self.captured is not None else None

    @property
    def model_proto(self) -> onnx.ModelProto:
        """`model` as an `onnx.ModelProto`, weights included and not folded (up to protobuf's 2 GB)."""
        return ir.to_proto(self.model)

    # Running ----------------------------------------------------------------------------------------------------------

    def initialize_inference_session(
        self,
        initializer: Callable[[str | bytes], Any] | ONNXRuntimeOptions | None = None,
        *,
        session_options: object = None,
        execution_providers: Sequence[str | tuple[str, dict[Any, Any]]] | None = None,
        execution_provider_options: Sequence[dict[Any, Any]] | None = None,
        provider: ProviderSpec = _CPU,
        threads: int = 0,
    ) -> None:
        """Opens the session that `__call__` uses: ONNX Runtime's, or onnx's reference evaluator's for files of opsets
        that it does not read.

        Args:
            initializer: called with the path of the saved model; returns an `onnxruntime.InferenceSession`. Or the
                options of ONNX Runtime's own session.
            session_options: an `onnxruntime.SessionOptions` for ONNX Runtime's own session.
            execution_providers: where it may run, in order of preference.
            execution_provider_options: options of these providers, in the same order.
            provider: where to run when none of the above is given.
            threads: threads inside one operator; 0 lets ONNX Runtime decide.
        """
        self.release()
        if isinstance(initializer, ONNXRuntimeOptions):
            initializer = initializer.initializer()
        if session_options is not None or execution_providers is not None or execution_provider_options is not None:
            options = ONNXRuntimeOptions(session_options, execution_providers, execution_provider_options)
            initializer = initializer or options.initializer()
        folder = tempfile.mkdtemp(prefix="batch_export_")
        self._cleanup = weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        path = Path(folder) / "model.onnx"
        self.save(path, external_data=True)
        if initializer is not None:
            self._session = initializer(str(path))
        elif self.model.opset_imports.get("", 0) > NEWEST_OPSET and provider is _CPU:
            self._session = ReferenceSession(path)
        else:
            self._session = OrtSession(path, provider, threads)

    def __call__(self, *args: Any, **kwargs: Any) -> Outputs:
        """Runs the model on tensors, nested as the torch model takes them.

        Returns:
            What the model returns, in order; the contents of changed buffers and inputs are its attribute `mutated`.
        """
        return Outputs.of(self._run(args, kwargs), self.output_kinds)

    def _run(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[torch.Tensor]:
        """Every output of the graph as it is now, in order."""
        feeds = self._feeds(args, kwargs)
        if self._session is None:
            self.initialize_inference_session()
        if isinstance(self._session, (OrtSession, ReferenceSession)):
            return list(map(to_tensor, tensors(self._session.output_names, self._session.run(feeds))))
        return [to_tensor(value) for value in self._session.run(None, feeds)]

    def call_reference(self, *args: object, **kwargs: object) -> Outputs:
        """The same in onnx's reference evaluator, which runs every node in Python."""
        feeds = self._feeds(args, kwargs)
        with tempfile.TemporaryDirectory(prefix="batch_export_") as folder:
            path = Path(folder) / "model.onnx"
            self.save(path, external_data=True)
            session = ReferenceSession(path)
            values = tensors(session.output_names, session.run(feeds))
            return Outputs.of([to_tensor(value) for value in values], self.output_kinds)

    def _feeds(self, args: tuple[object, ...], kwargs: Mapping[str, object]) -> dict[str, Value]:
        tensors = self.adapt_torch_inputs_to_onnx(*args, **kwargs)
        weights = self.model.graph.initializers  # which may be inputs as well, and are their own values then
        inputs = [value.name or "" for value in self.model.graph.inputs if value.name not in weights]
        return {name: to_value(tensor) for name, tensor in zip(inputs, tensors, strict=True)}

    def adapt_torch_inputs_to_onnx(
        self, *model_args: Any, model_with_state_dict: Any = None, **model_kwargs: Any
    ) -> tuple[torch.Tensor, ...]:
        """The tensors among (nested) torch inputs, in the order of the ONNX inputs.

        Args:
            *model_args: positional inputs of the torch model.
            model_with_state_dict: where the tensors come from of ONNX inputs that are weights.
            **model_kwargs: keyword inputs of the torch model.

        Raises:
            ValueError: if their number differs from that of the ONNX inputs, or a number that is fixed in the model is
                another one now.
        """
        weights = () if isinstance(model_with_state_dict, torch.nn.Module) else self.model.graph.initializers
        names = [value.name or "" for value in self.model.graph.inputs if value.name not in weights]
        state: dict[str, torch.Tensor] = {}
        if isinstance(model_with_state_dict, torch.nn.Module):
            known = checkpoint.load(model_with_state_dict)
            state = {name: known[name] for name in names if name in known}
        user = adapters.flat_inputs(
            self._captured, [name for name in names if name not in state], model_args, model_kwargs, self.call_form
        )
        remaining = iter(user)
        return tuple(state[name] if name in state else next(remaining) for name in names)

    def adapt_torch_outputs_to_onnx(
        self, model_outputs: object, model_with_state_dict: object = None
    ) -> list[torch.Tensor]:
        """The tensors among (nested) torch outputs, in the order of the ONNX outputs; None is left out.

        Args:
            model_outputs: what the torch model returned.
            model_with_state_dict: where the new contents come from of buffers that the model changes; they are outputs
                of the ONNX model after the model's own.
        """
        tensors = adapters.flat_outputs(model_outputs)
        if isinstance(model_with_state_dict, torch.nn.Module):
            state = checkpoint.load(model_with_state_dict)
            changed = [target for kind, target in self.output_kinds if kind == "BUFFER_MUTATION"]
            tensors += [adapters.onnx_tensor(state[target]) for target in changed]
        return tensors

    def compute_values(
        self, value_names: Sequence[str], args: Sequence[object] = (), kwargs: Mapping[str, object] | None = None
    ) -> NamedTensors:
        """Runs the model and returns intermediate values (inputs and weights too), in order and by name.

        Raises:
            ValueError: if a name is not a value of the main graph.
        """
        by_name = dict(self.model.graph.initializers)
        by_name |= {value.name or "": value for value in self.model.graph.inputs}
        by_name |= {value.name or "": value for node in self.model.graph for value in node.outputs}
        missing = [name for name in value_names if name not in by_name]
        if missing:
            raise ValueError(f"the model has no values named {', '.join(missing)}")
        kept = list(self.model.graph.outputs)
        self.release()
        try:
            self.model.graph.outputs.clear()
            self.model.graph.outputs.extend(by_name[name] for name in value_names)
            results = self._run(tuple(args), dict(kwargs or {}))
        finally:
            self.model.graph.outputs.clear()
            self.model.graph.outputs.extend(kept)
            self.release()
        return NamedTensors.of(value_names, results)

    def release(self) -> None:
        """Closes the session and deletes its files."""
        self._session = None
        if self._cleanup is not None:
            self._cleanup()
            self._cleanup = None

    # Changing ---------------------------------------------------------------------------------------------------------

    def optimize(self) -> None:
        """Optimises the model in place."""
        model = written_out(self.model, self.functions.made) if self.functions.made else self.model
        done = naming.optimised(model, lambda: passes.optimise(model))
        if model is not self.model:
            self.functions = make_functions(model, self.functions.wanted)
            self.model = model
        self.provenance = replace(self.provenance, passes=(*self.provenance.passes, *done))
        self.release()

    def rename_axes(self, rename_mapping: Mapping[str | ir.SymbolicDim, str]) -> None:
        """Renames dynamic axes in place: in shapes, inside expressions of axes, and in the metadata.

        Names that no axis has are reported as a warning.

        Args:
            rename_mapping: old name, a whole expression, or an axis of one of the model's shapes -> new name.
        """
        names = {str(old.value if isinstance(old, ir.SymbolicDim) else old): new for old, new in rename_mapping.items()}
        if missing := naming.rename_axes(self.model, names):
            known = ", ".join(sorted(naming.axis_names(self.model))) or "all static"
            message = f"no axis is called {', '.join(missing)}; the axes are {known}"
            warnings.warn(message, OnnxExporterWarning, stacklevel=2)
        if self.captured is not None:
            renamed = {symbol: names.get(name, name) for symbol, name in self.captured.axis_names.items()}
            self.provenance = replace(self.provenance, captured=replace(self.captured, axis_names=renamed))
        self.release()

    def apply_weights(self, state_dict: checkpoint.ModelState) -> None:
        """Gives the model's weights the tensors of a state dict, a module, a torch checkpoint or a safetensors file.

        Names that the exported module does not have are reported as a warning.

        Raises:
            SaveError: if a tensor has another shape or dtype than the weight, or a file cannot be read.
        """
        given = checkpoint.load(state_dict)
        known = weights.by_module_name(self.model)
        for name, tensor in given.items():
            if name in known:
                self._fit(known[name], name, tensor)
        unknown = [name for name in given if name not in known and not self._is_weight(name)]
        if unknown:
            warnings.warn(f"the model has no weights named {', '.join(unknown)}", OnnxExporterWarning, stacklevel=2)
        self.release()

    def _is_weight(self, name: str) -> bool:
        """Whether the torch module has such a weight, be it unused or merged with an equal one in the ONNX model."""
        program = self._captured
        return program is not None and (name in program.state_dict or name in program.constants)

    def _fit(self, value: ir.Value, name: str, tensor: torch.Tensor) -> None:
        shown = torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor
        fitting = torch_tensors.tensor_of(shown, name=name)
        before = value.const_value
        if before is not None and (before.dtype, before.shape.numpy()) != (fitting.dtype, fitting.shape.numpy()):
            raise SaveError(
                f"the weight {name} is {before.dtype.name}{list(before.shape.numpy())} in the model, "
                f"and {fitting.dtype.name}{list(fitting.shape.numpy())} was given",
                next_step="pass the state dict of the module that was exported",
            )
        value.const_value = fitting

    def written(self, fold_weights: bool | None = None) -> tuple[ir.Model, list[passes.PassReport]]:
        """The model as files have it, and what was done to it: a copy with folded weights, or `model` itself.

        Args:
            fold_weights: whether they are folded; None as the program says.
        """
        if not (self.fold_weights if fold_weights is None else fold_weights):
            return self.model, []
        flat = written_out(self.model, self.functions.made) if self.functions.made else self.model
        model, report = weight_folding.folded(flat, self.fold_growth, across_modules=not self.functions.made)
        told_once.shorten(model)
        if flat is not self.model:
            make_functions(model, self.functions.wanted)
        return model, [report]

    def _of_file(self, fold_weights: bool | None) -> tuple[ir.Model, list[passes.PassReport]]:
        """As `written`; a model that nobody else has is folded itself."""
        folds = self.fold_weights if fold_weights is None else fold_weights
        model = self._owned.taken() if folds and not self.functions.made else None
        if model is None:
            return self.written(fold_weights)
        report = weight_folding.fold(model, self.fold_growth)
        told_once.shorten(model)
        return model, [report]

    # Saving -----------------------------------------------------------------------------------------------------------

    def save(
        self,
        destination: str | os.PathLike[str] | io.BufferedIOBase,
        *,
        include_initializers: bool = True,
        keep_initializers_as_inputs: bool = False,
        external_data: bool | None = None,
        model_state: checkpoint.ModelState | None = None,
        fold_weights: bool | None = None,
    ) -> None:
        """Writes the model.

        Args:
            destination: a path, or a binary file object.
            include_initializers: whether weights are written.
            keep_initializers_as_inputs: whether weights are also inputs of the model.
            external_data: weights in a file of their own (`<destination>.data`); None decides by size.
            model_state: weights to write in place of the model's own: a state dict, a module, or the path of a torch
                checkpoint or a safetensors file. The program keeps what it has.
            fold_weights: compute in advance what depends on weights alone; None as the program says. Nothing is folded
                where the weights are left out, or are inputs too: others may then take their place.

        Raises:
            TypeError: if `external_data` is true and `destination` is not a path.
            ValueError: if weights are given and left out at once.
            SaveError: if weights have no data, or the file cannot be written.
        """
        if external_data and not isinstance(destination, (str, os.PathLike)):
            raise TypeError("external_data=True needs a path as the destination, not a file object")
        if model_state is not None and not include_initializers:
            raise ValueError("model_state gives weights, and include_initializers=False leaves them out: choose one")
        with (
            young_only(),
            self._weights_of(model_state),
            writing.initializers(self._owned.looked_at(), include_initializers, keep_initializers_as_inputs),
        ):
            model = self._owned.looked_at()
            writing.refuse_fake(weights.model_tensors(model))
            if include_initializers and not keep_initializers_as_inputs:
                model, self.folding = self._of_file(fold_weights)
            try:
                if isinstance(destination, (str, os.PathLike)):
                    writing.write_path(model, Path(os.fspath(destination)), external_data)
                else:
                    writing.write_stream(model, destination)
            except OSError as error:
                raise SaveError(f"the model could not be written to {destination}: {error}") from error
            finally:
                self._owned.let_go()

    @contextmanager
    def _weights_of(self, model_state: checkpoint.ModelState | None) -> Iterator[None]:
        """For the time of saving, the weights of the model state."""
        if model_state is None:
            yield
            return
        kept = {name: value.const_value for name, value in self.model.graph.initializers.items()}
        session, cleanup = self._session, self._cleanup
        self._session, self._cleanup = None, None  # they stay open: the program itself does not change
        try:
            self.apply_weights(model_state)
            yield
        finally:
            for name, tensor in kept.items():
                self.model.graph.initializers[name].const_value = tensor
            self._session, self._cleanup = session, cleanup

    # Explaining -------------------------------------------------------------------------------------------------------

    def save_diagnostics(self, destination: str | os.PathLike[str]) -> None:
        """Writes what the export noted as a SARIF 2.1.0 log.

        Raises:
            ValueError: if the destination does not end in `.sarif`.
        """
        if not os.fspath(destination).endswith(".sarif"):
            raise ValueError(f"a SARIF log ends in .sarif, and the destination is {os.fspath(destination)}")
        from batch_export.exporter.report import sarif  # lazy: needed for this alone

        journal = self.diagnostic_context or Journal(self.model.graph.name or "", self.model.opset_imports.get("", 0))
        sarif.write(Path(destination), journal)

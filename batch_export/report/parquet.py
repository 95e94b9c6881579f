"""summary.parquet: the columns of summary.csv with their types. Needs the extra `parquet` (pyarrow)."""

from __future__ import annotations

import io
from collections.abc import Sequence

from batch_export.errors import UsageError
from batch_export.record import Record
from batch_export.report.spreadsheet import COLUMNS, values_of

_INTEGERS = ("schema_version", "opset", "latency_runs", "onnx_bytes", "nodes")
_NUMBERS = (
    *("max_abs", "max_rel", "latency_median_ms", "latency_p95_ms", "latency_ci_low_ms", "latency_ci_high_ms"),
    *("eager_ms", "speed_up"),
)


def parquet_bytes(records: Sequence[Record]) -> bytes:
    """Returns the file.

    Raises:
        UsageError: pyarrow is not installed.
    """
    try:
        import pyarrow  # lazy: an optional extra
        from pyarrow import parquet
    except ImportError as error:
        raise UsageError(
            "Parquet needs the package pyarrow, which is not installed. Next step: pip install 'batch_export[parquet]'"
        ) from error
    rows = [values_of(record) for record in records]
    columns = {
        name: pyarrow.array([row[index] for row in rows], type=_type(pyarrow, name))
        for index, name in enumerate(COLUMNS)
    }
    stream = io.BytesIO()
    parquet.write_table(pyarrow.table(columns), stream)
    return stream.getvalue()


def _type(pyarrow: object, name: str) -> object:
    kind = (
        "int64"
        if name in _INTEGERS
        else "float64"
        if name in _NUMBERS
        else "bool_"
        if name in ("contended", "by_distribution", "by_ties")
        else "string"
    )
    return getattr(pyarrow, kind)()

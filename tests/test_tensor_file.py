"""runtime/tensor_file.py: what goes in comes out, whatever the dtype, and damage is noticed."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from batch_export.numbers.values import RawTensor
from batch_export.runtime.tensor_file import TensorFile, TensorFileError, TensorFileWriter, write

DTYPES = st.one_of(
    hnp.boolean_dtypes(), hnp.integer_dtypes(), hnp.unsigned_integer_dtypes(), hnp.floating_dtypes(sizes=(16, 32, 64)),
    hnp.complex_number_dtypes(sizes=(64, 128)),
)  # fmt: skip
ARRAYS = DTYPES.flatmap(lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, min_side=0, max_side=4)))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(arrays=st.dictionaries(st.text(max_size=8), ARRAYS, max_size=5))
def test_arrays_round_trip(tmp_path: Path, arrays: dict[str, np.ndarray]) -> None:
    path = tmp_path / "values.tensors"
    write(path, arrays, description={"sizes": {"batch": 2}})
    stored = TensorFile(path)
    assert list(stored) == list(arrays)
    assert stored.description == {"sizes": {"batch": 2}}
    for name, array in arrays.items():
        value = stored[name]
        assert isinstance(value, np.ndarray)
        assert (value.dtype, value.shape) == (array.dtype.newbyteorder("="), array.shape)
        np.testing.assert_array_equal(value, array)


@pytest.mark.parametrize(("dtype", "bits"), [("bfloat16", np.uint16), ("float8_e5m2", np.uint8)])
def test_dtypes_that_numpy_lacks_keep_their_bits(tmp_path: Path, dtype: str, bits: type) -> None:
    value = RawTensor(dtype, np.arange(6, dtype=bits).reshape(2, 3))
    write(tmp_path / "f", {"x": value})
    stored = TensorFile(tmp_path / "f")["x"]
    assert isinstance(stored, RawTensor)
    assert (stored.dtype, stored.shape) == (dtype, (2, 3))
    np.testing.assert_array_equal(stored.bits, value.bits)


def test_tensors_are_aligned_and_equal_bytes_stored_once(tmp_path: Path) -> None:
    block = np.arange(1000, dtype=np.float32)
    write(tmp_path / "f", {"small": np.ones(1, np.int8), "a": block, "b": block.copy(), "view": block[::-1][::-1]})
    assert (tmp_path / "f").stat().st_size < 2 * block.nbytes
    stored = TensorFile(tmp_path / "f")
    assert all(np.asarray(stored[name]).ctypes.data % 64 == 0 for name in stored)
    np.testing.assert_array_equal(stored["view"], block)


def test_names_under_a_prefix_keep_their_order(tmp_path: Path) -> None:
    write(tmp_path / "f", {f"case0/out/{index}": np.array(index) for index in range(12)} | {"case0/in/x": np.array(1)})
    outputs = TensorFile(tmp_path / "f").under("case0/out/")
    assert [int(np.asarray(value)) for value in outputs.values()] == list(range(12))
    assert list(outputs) == [str(index) for index in range(12)]


def test_an_unfinished_file_cannot_be_read(tmp_path: Path) -> None:
    with suppress(KeyboardInterrupt), TensorFileWriter(tmp_path / "f") as writer:
        writer.add("x", np.ones(100))
        raise KeyboardInterrupt
    with pytest.raises(TensorFileError, match="did not finish"):
        TensorFile(tmp_path / "f")


def test_damage_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "f"
    write(path, {"x": np.ones(100)})
    whole = path.read_bytes()
    path.write_bytes(whole[:-5])
    with pytest.raises(TensorFileError, match="was cut off"):
        TensorFile(path)
    path.write_bytes(whole[:10])
    with pytest.raises(TensorFileError, match="too short"):
        TensorFile(path)
    path.write_bytes(whole[:8] + b"\x63" + whole[9:])
    with pytest.raises(TensorFileError, match="tensor file version 99, this program reads 1"):
        TensorFile(path)
    with pytest.raises(TensorFileError, match="cannot be read: No such file"):
        TensorFile(tmp_path / "nothing")


def test_wrong_use_is_a_sentence(tmp_path: Path) -> None:
    with TensorFileWriter(tmp_path / "f") as writer:
        writer.add("x", np.ones(1))
        with pytest.raises(TensorFileError, match="'x' was added already"):
            writer.add("x", np.ones(1))
        with pytest.raises(TensorFileError, match="'words' holds text"):
            writer.add("words", np.array(["a"]))
    with pytest.raises(KeyError, match="no tensor 'y'; it holds x"):
        TensorFile(tmp_path / "f")["y"]

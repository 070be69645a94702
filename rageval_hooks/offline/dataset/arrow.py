"""Tables of other libraries, which offer their rows by the Arrow protocol: Polars, DuckDB, Arrow itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rageval_hooks.errors import requires

if TYPE_CHECKING:
    import pandas

__all__ = ["frame_of_arrow"]


def frame_of_arrow(data: object, pandas: Any) -> pandas.DataFrame:
    """Return a table as a data frame whose columns keep their Arrow types, so that it converts back without a loss.

    Args:
        data: an object with ``__arrow_c_stream__``.
        pandas: the module.

    Raises:
        MissingDependencyError: pyarrow is not installed.
    """
    with requires("pyarrow", "offline", "tables of other libraries"):
        import pyarrow
    table = pyarrow.table(data)
    usual = pyarrow.schema([_usual_field(field) for field in table.schema], metadata=table.schema.metadata)
    # Without the types of Arrow, whole numbers with missing values would become floats, and dates objects.
    frame: pandas.DataFrame = table.cast(usual).to_pandas(types_mapper=pandas.ArrowDtype)
    return frame


def _usual_field(field: Any) -> Any:
    return field.with_type(_usual_type(field.type))


def _usual_type(kind: Any) -> Any:
    """Return a type with texts as large strings: pandas cannot read the string views that Polars has in its lists."""
    import pyarrow
    from pyarrow import types

    if types.is_string_view(kind):
        return pyarrow.large_string()
    if types.is_binary_view(kind):
        return pyarrow.large_binary()
    if types.is_struct(kind):
        return pyarrow.struct([_usual_field(field) for field in kind])
    if types.is_dictionary(kind):
        return pyarrow.dictionary(kind.index_type, _usual_type(kind.value_type), kind.ordered)
    if types.is_fixed_size_list(kind):
        return pyarrow.list_(_usual_field(kind.value_field), kind.list_size)
    if types.is_large_list(kind):
        return pyarrow.large_list(_usual_field(kind.value_field))
    if types.is_list(kind):
        return pyarrow.list_(_usual_field(kind.value_field))
    return kind

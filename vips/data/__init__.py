"""Where records come from: arrays, and files that are read a partition at a time.

==========================  ==================================================================================
``fit(...)`` takes          records
==========================  ==================================================================================
arrays, CSR, data frames    in memory; as ``InMemoryData`` in ranges of rows
``Sequences``               sequences of different lengths, in memory
``SequenceShards``          sequences in pairs of ``.npy`` files, memory-mapped; ``write_sequences`` writes them
``ParquetSequences``        sequences as lists in Parquet columns
``DaskSequences``           sequences that Dask computes
``NpySource``               ``.npy`` files, memory-mapped
``CSRShards``               a folder of ``.npz`` files as ``scipy.sparse.save_npz`` writes them
``ParquetTable``            declared columns of Parquet files (needs ``vips[parquet]``)
``ParquetDocuments``        lists of word numbers in a Parquet column
``ParquetTexts``            texts in a Parquet column, for ``PrivateCountVectorizer``, as are the next three
``TextFiles``               a folder of text files, one document a file
``TextPartitions``          texts that functions return, one for each partition
``InMemoryTexts``           a list of texts in ranges
``DaskSource``              a Dask array or data frame, or simply ``fit(dask_array)``
==========================  ==================================================================================
"""

from vips.data._arrays import PARTITION_SIZE, InMemoryData
from vips.data._checks import check_data, whole_csr
from vips.data._dask import DaskSource, as_source
from vips.data._dask_sequences import DaskSequences
from vips.data._grouped import GroupedRows, GroupedSequences, GroupedTexts
from vips.data._npy import NpySource
from vips.data._parquet import ParquetDocuments, ParquetTable, ParquetTexts
from vips.data._parquet_sequences import ParquetSequences
from vips.data._records import OpenPartition, Records, Runs, rows_without
from vips.data._regroup import regroup
from vips.data._sequence_shards import SequenceShards
from vips.data._sequences import Sequences
from vips.data._shards import CSRShards
from vips.data._source import DataSource, Partition, SequenceSource
from vips.data._texts import InMemoryTexts, TextFiles, TextPartitions, TextSource
from vips.data._write_sequences import write_sequences
from vips.exceptions import SourceError

__all__ = [
    "PARTITION_SIZE",
    "CSRShards",
    "DaskSequences",
    "DaskSource",
    "DataSource",
    "GroupedRows",
    "GroupedSequences",
    "GroupedTexts",
    "InMemoryData",
    "InMemoryTexts",
    "NpySource",
    "OpenPartition",
    "ParquetDocuments",
    "ParquetSequences",
    "ParquetTable",
    "ParquetTexts",
    "Partition",
    "Records",
    "Runs",
    "SequenceShards",
    "SequenceSource",
    "Sequences",
    "SourceError",
    "TextFiles",
    "TextPartitions",
    "TextSource",
    "as_source",
    "check_data",
    "regroup",
    "rows_without",
    "whole_csr",
    "write_sequences",
]

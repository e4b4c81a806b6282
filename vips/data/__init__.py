"""Where records come from: arrays, and files that are read a partition at a time.

==========================  ==================================================================================
``fit(...)`` takes          records
==========================  ==================================================================================
arrays, CSR, data frames    in memory; as ``InMemoryData`` in ranges of rows
``Sequences``               sequences of different lengths, in memory
``SequenceSource``          sequences in shards, which ``write_sequences`` writes, in Parquet or in parts of Dask
``NpySource``               ``.npy`` files, memory-mapped
``CSRShards``               a folder of ``.npz`` files as ``scipy.sparse.save_npz`` writes them
``ParquetTable``            declared columns of Parquet files (needs ``vips[parquet]``)
``ParquetDocuments``        lists of word numbers in a Parquet column
``ParquetTexts``            texts in a Parquet column, for ``PrivateCountVectorizer``, as are the next three
``TextFiles``               a folder of text files, one document a file
``TextPartitions``          texts that functions return, one for each partition
``InMemoryTexts``           a list of texts in ranges
``DaskSource``              a Dask array or data frame, or simply ``fit(dask_array)``
``regrouped``               rows, texts or sequences of persons, in a folder that ``regroup`` wrote
==========================  ==================================================================================
"""

from vips.core.records.arrays import PARTITION_SIZE, InMemoryData
from vips.core.records.checks import check_data, whole_csr
from vips.core.records.partition import OpenPartition, Records, Runs, rows_without
from vips.core.records.source import DataSource, Partition
from vips.data._dask import DaskSource, as_source
from vips.data._grouped import regrouped
from vips.data._npy import CSRShards, NpySource
from vips.data._parquet import ParquetDocuments, ParquetTable, ParquetTexts
from vips.data._regroup import regroup
from vips.data._sequence_source import SequenceSource, write_sequences
from vips.data._sequences import Sequences
from vips.data._texts import InMemoryTexts, TextFiles, TextPartitions, TextSource
from vips.exceptions import SourceError

__all__ = [
    "PARTITION_SIZE", "CSRShards", "DaskSource", "DataSource", "InMemoryData", "InMemoryTexts", "NpySource",
    "OpenPartition", "ParquetDocuments", "ParquetTable", "ParquetTexts", "Partition", "Records", "Runs", "SequenceSource",
    "Sequences", "SourceError", "TextFiles", "TextPartitions", "TextSource", "as_source", "check_data", "regroup",
    "regrouped", "rows_without", "whole_csr", "write_sequences",
]  # fmt: skip

# Reads the metric points of a store in place, with three tools: `python3 read_store.py .assay`.
# metrics/RUN/TASK-ATTEMPT.parquet has the columns name, step, value, seq (the order) and time (milliseconds since 1970).
import sys

import duckdb
import pandas
import polars

store = sys.argv[1] if len(sys.argv) > 1 else ".assay"
files = f"{store}/metrics/*/*.parquet"

points = polars.scan_parquet(files, include_file_paths="file", missing_columns="insert")
points = points.with_columns(polars.col("time").cast(polars.Datetime("ms"))).collect()
first = points.filter(polars.col("file").str.ends_with("metrics/1/0-1.parquet"), polars.col("name") == "loss").sort("seq")
print(f"polars: {points.height} points, last loss of run 1 task 0: {first['value'][-1]}")

curve = pandas.read_parquet(f"{store}/metrics/1/0-1.parquet")
curve = curve[curve["name"] == "loss"].sort_values("seq")
curve["time"] = pandas.to_datetime(curve["time"], unit="ms")
every = pandas.read_parquet(f"{store}/metrics")
print(f"pandas: {len(every)} points, last loss of run 1 task 0: {curve['value'].iloc[-1]}")

query = f"select arg_max(value, seq) from '{store}/metrics/1/0-1.parquet' where name = 'loss'"
count = duckdb.sql(f"select count(*) from read_parquet('{files}', union_by_name = true)").fetchall()[0][0]
print(f"duckdb: {count} points, last loss of run 1 task 0: {duckdb.sql(query).fetchall()[0][0]}")

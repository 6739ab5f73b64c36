"""What a client may do with a token: mlflow_tokens.py URI none|read|submit."""

import os
import sys

os.environ["MLFLOW_HTTP_REQUEST_MAX_RETRIES"] = "0"
from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient

uri, scope = sys.argv[1:]
client = MlflowClient(uri)


def attempt(call, *args):
    try:
        call(*args)
        return "done"
    except MlflowException as error:
        assert "token" in str(error), str(error)
        return error.error_code


read, write = attempt(client.search_runs, ["0"]), attempt(client.create_run, "0")
expected = {
    "none": ("UNAUTHENTICATED", "UNAUTHENTICATED"),
    "read": ("done", "PERMISSION_DENIED"),
    "submit": ("done", "done"),
}[scope]
assert (read, write) == expected, (scope, read, write)
print("ok")

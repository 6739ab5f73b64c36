//! The node agent: runs attempts in executors and reports what they say.

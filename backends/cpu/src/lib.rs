//! The CPU backend: candle-core for storage and matmul, our own kernels where the time goes.

//! TEN, the Temporal Eigenstate Network: a diagonal complex recurrence replaces attention.
//!
//! ```text
//! B sequences    T tokens    D width    K eigenstates a cell    C chunk (length of a backpropagation segment)
//!
//! cell       beta_t = gamma * (W_in x_t)                 W_in: D -> K real, or D -> 2K read as complex
//!            c_t    = a * c_{t-1} + beta_t               a_k = m_k exp(i w_k); c_{-1} is the carry, or 0
//!            y_t    = W_out [Re c_t ; Im c_t] + d * x_t  `readout: real` uses only Re c_t; `skip: false` has no d
//!
//! ring       m = exp(-exp(nu))                           gamma = exp(log_gamma), initially sqrt(1 - m^2)
//! seed       m = 0.1 + 0.89 sigmoid(alpha)               gamma = 1
//!
//! selective  a_t = sigmoid(alpha + 0.1 tanh(u_t)) exp(i (w + 0.1 tanh(v_t)))    [u; v] = W_sel x
//!
//! resonance  R = I + eps M / ||M||_F                     K x K, M learned, eps is `resonance_strength`
//!            readout      y_t = W_out [Re R c_t ; Im R c_t] + d * x_t
//!            recurrent    c_t = R (a * c_{t-1}) + beta_t
//!            chunk_carry  c_{nC-1} is replaced by R c_{nC-1} before step nC, n > 0: the result depends on C
//!
//! block      pre:  x += drop(mean over cells of cell(norm x));  x += drop(FFN(norm x));  one norm after the last block
//!            post: x = norm(x + drop(mean over cells of cell(x)));  x = norm(x + drop(FFN(x)))
//!
//! scales     z^s_j = mean of x_{sj} .. x_{sj+s-1}        known from token sj+s-1 on
//!            y_t = sum over s of softmax(e)_s block_s(z^s)_j    j the last window known at t; nothing before the first
//! ```
//!
//! Except with `chunk_carry`, the forward result does not depend on C. With `truncate`, the gradient of the state is
//! cut at every multiple of C.
//!
//! The cells of a block are run as one: their matrices are joined when the model is built, including gamma, the mean
//! over the cells and the readout's resonance, so a pass has one input projection, one scan over all states and one
//! output projection. Int8 matrices of several cells are not joined.
//!
//! Parameters: `embedding.table`, `positions.table`, `blocks.L.norm1`, `blocks.L.cell.I.{nu | alpha, phase, log_gamma,
//! in, select, resonance, out, skip}`, `blocks.L.norm2`, `blocks.L.ffn.{up, gate, down}`, `norm`; with scales, the
//! parameters of a block are below `blocks.L.scale.S`, next to `blocks.L.scale_weights`.
//!
//! Carry: `blocks.L.cells.{re, im}` `[B, cells K]`; with scales `blocks.L.scale.S.{cells.re, cells.im, pending, held}`.

mod block;
mod cell;
mod mixer;
mod network;
mod recurrence;
mod scales;
mod telemetry;

pub use block::Block;
pub use cell::{Cell, Coupling, Magnitude};
pub use mixer::{Joined, Mixer};
pub use network::{Positions, Ten};
pub use recurrence::{Pair, Recurrence, SELECTION};
pub use scales::{Level, Scales};

//! The models under test: ten and transformer, and the small layers that they share.

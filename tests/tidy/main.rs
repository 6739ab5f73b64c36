//! The shape of the repository as tests: the layers, imports without cycles, the sizes, the names, the words that must and must not be
//! there.

mod documents;
mod layers;
mod modules;
mod names;
mod sources;

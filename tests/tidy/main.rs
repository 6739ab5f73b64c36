//! Tests of the repository's structure: layers, acyclic imports, sizes, names, and required and forbidden words.

mod documents;
mod layers;
mod modules;
mod names;
mod sources;

//! Pages, assets and the JSON API.

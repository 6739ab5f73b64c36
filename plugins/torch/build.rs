//! Sets the library path of the program: `libtorch/lib` in its own folder, then the path of libtorch at build time.

fn main() {
    println!("cargo:rerun-if-env-changed=LIBTORCH");
    if std::env::var_os("CARGO_FEATURE_LIBTORCH").is_none() {
        return;
    }
    println!("cargo:rustc-link-arg-bins=-Wl,-rpath,$ORIGIN/libtorch/lib");
    if let Ok(folder) = std::env::var("LIBTORCH") {
        println!("cargo:rustc-link-arg-bins=-Wl,-rpath,{folder}/lib");
    }
}

//! The `forebay` command. All of it is in the library, of which `forebay-lab` uses a part.

use std::process::ExitCode;

fn main() -> ExitCode {
    forebay_cli::main()
}

//! The devices that this machine has for the GPU backends, and what they can do.

use std::process::ExitCode;

use burn::backend::DispatchDevice;
use clap::{ArgMatches, Command};
use heedful_backends::Backend;

pub(crate) fn command() -> Command {
    Command::new("devices").about("Show the devices of the GPU backends, and what they can do")
}

pub(crate) fn main(_: &ArgMatches) -> ExitCode {
    let mut found = 0;
    for backend in Backend::ALL.into_iter().filter(|backend| backend.is_accelerator()) {
        match backend.device() {
            Ok(device) => {
                found += 1;
                let DispatchDevice::Cube(device) = device.as_dispatch() else { continue };
                let client = device.client();
                let properties = client.properties();
                println!("{backend}: {:?}", properties.identity);
                println!("  hardware: {:?}", properties.hardware);
                println!("  memory: {:?}", properties.memory);
                println!("  features: {:?}", properties.features);
            }
            Err(error) => println!("{backend}: {error}"),
        }
    }
    if found > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

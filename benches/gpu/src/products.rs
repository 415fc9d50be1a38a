//! Products of matrices as a training step has them, by one of CubeK's strategies.
//!
//! Compiling takes most of the time, so that a program that measures several strategies starts a process for each and lets them measure in turn: with `--wait`
//! a process says `ready`, and measures when its input has a line.

use std::io::stdin;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::time::Instant;

use burn::backend::DispatchDevice;
use clap::{ArgMatches, CommandFactory, FromArgMatches, Parser};
use cubecl::client::Client;
use cubecl::future::block_on;
use cubecl::ir::{ElemType, FloatKind};
use cubecl::prelude::TensorBinding;
use cubecl::server::Handle;
use cubek::matmul::definition::{MatmulElems, MatmulGlobalElems};
use cubek::matmul::launch::launch_ref;
use cubek::matmul::multi_level::Strategy as Levels;
use cubek::matmul::multi_level::components::tile::TileMatmulKind;
use cubek::matmul::multi_level::routines::batch::double_buffering::DoubleBufferingArgs;
use cubek::matmul::multi_level::routines::batch::ordered_double_buffering::OrderedSelectionArgs;
use cubek::matmul::multi_level::routines::batch::simple::SimpleArgs;
use cubek::matmul::multi_level::routines::batch::specialized::SpecializedStrategy;
use cubek::matmul::routine::BlueprintStrategy::Inferred;
use cubek::matmul::strategy::Strategy;
use cubek::std::InputBinding;
use half::bf16;
use heedful_backends::Backend;
use serde_json::json;

/// Time products of matrices as a training step has them.
#[derive(Parser)]
#[command(name = "products")]
struct Options {
    /// The GPU's backend
    #[arg(long, value_name = "NAME", default_value = "cuda")]
    backend: Backend,

    /// Type of the numbers: f32 or bf16
    #[arg(long, value_name = "f32|bf16", default_value = "bf16", value_parser = ["f32", "bf16"])]
    precision: String,

    /// A strategy; without one, their names are listed
    #[arg(long, value_name = "NAME")]
    strategy: Option<String>,

    /// Measure when the input has a line, and not before
    #[arg(long, requires = "strategy")]
    wait: bool,
}

/// The strategies by their names: each with fragments of tensor cores that are opaque (`cmma`), and with those of known layout (`mma`).
fn strategies() -> Vec<(String, Strategy)> {
    let mut found = vec![("auto".to_owned(), Strategy::Auto)];
    macro_rules! add {
        ($name:literal, $cmma:ident, $mma:ident, $kind:ident => $args:expr) => {
            let $kind = TileMatmulKind::Cmma;
            found.push((concat!($name, "-cmma").to_owned(), Strategy::MultiLevel(Levels::$cmma(Inferred($args)))));
            let $kind = TileMatmulKind::Mma;
            found.push((concat!($name, "-mma").to_owned(), Strategy::MultiLevel(Levels::$mma(Inferred($args)))));
        };
    }
    let simple = |tile_matmul, multi_rows| SimpleArgs { multi_rows, tile_matmul };
    let double = |tile_matmul, specialized| DoubleBufferingArgs { specialized, tile_matmul };
    let ordered =
        |tile_matmul, rows| OrderedSelectionArgs { partition_k: Some(2), row_count: Some(rows), rows_per_plane: Some(2), tile_matmul };
    let specialised = |tile_matmul| SpecializedStrategy { tile_matmul };
    add!("simple", SimpleCyclicCmma, SimpleCyclicMma, kind => simple(kind, false));
    add!("simple-rows", SimpleCyclicCmma, SimpleCyclicMma, kind => simple(kind, true));
    add!("simple-tma", SimpleTmaCmma, SimpleTmaMma, kind => simple(kind, false));
    add!("simple-tma-rows", SimpleTmaCmma, SimpleTmaMma, kind => simple(kind, true));
    add!("double", DoubleCyclicCmma, DoubleCyclicMma, kind => double(kind, false));
    add!("double-specialised", DoubleCyclicCmma, DoubleCyclicMma, kind => double(kind, true));
    add!("double-async", DoubleAsyncCyclicCmma, DoubleAsyncCyclicMma, kind => double(kind, false));
    add!("double-tma", DoubleTmaCmma, DoubleTmaMma, kind => double(kind, false));
    add!("ordered-4", OrderedDoubleCmma, OrderedDoubleMma, kind => ordered(kind, 4));
    add!("ordered-8", OrderedDoubleCmma, OrderedDoubleMma, kind => ordered(kind, 8));
    add!("specialised", SpecializedCyclicCmma, SpecializedCyclicMma, kind => specialised(kind));
    add!("specialised-tma", SpecializedTmaCmma, SpecializedTmaMma, kind => specialised(kind));
    found
}

/// Rows, inner dimension and columns, and which factor is the transpose of a matrix that lies in memory row by row.
const PRODUCTS: [(&str, [usize; 3], [bool; 2]); 8] = [
    ("forward", [16_384, 768, 3072], [false, false]),
    ("gradient of rows", [16_384, 3072, 768], [false, true]),
    ("gradient of weights", [768, 16_384, 3072], [true, false]),
    ("forward, square", [16_384, 768, 768], [false, false]),
    ("gradient of weights, square", [768, 16_384, 768], [true, false]),
    ("logits", [2048, 768, 50_257], [false, true]),
    ("gradient of states", [2048, 50_257, 768], [false, false]),
    ("gradient of embeddings", [50_257, 2048, 768], [true, false]),
];

/// Repetitions of a measurement.
const REPETITIONS: usize = 10;

pub(crate) fn command() -> clap::Command {
    Options::command()
}

pub(crate) fn main(matches: &ArgMatches) -> ExitCode {
    let options = Options::from_arg_matches(matches).unwrap_or_else(|error| error.exit());
    let Some(wanted) = &options.strategy else {
        strategies().iter().for_each(|(name, _)| println!("{name}"));
        return ExitCode::SUCCESS;
    };
    let Some((_, strategy)) = strategies().into_iter().find(|(name, _)| name == wanted) else {
        eprintln!("products: --strategy {wanted}: there is none of this name; `products` lists them");
        return ExitCode::from(2);
    };
    let device = match options.backend.device() {
        Ok(device) => device,
        Err(error) => {
            eprintln!("products: {error}");
            return ExitCode::from(2);
        }
    };
    let DispatchDevice::Cube(device) = device.as_dispatch() else {
        eprintln!("products: --backend {}: not a GPU", options.backend);
        return ExitCode::from(2);
    };
    let bench = Bench { client: device.client(), strategy, is_bf16: options.precision == "bf16" };
    // Compiled before the line is read.
    let prepared: Vec<_> = PRODUCTS.iter().map(|&(name, sizes, transposed)| (name, sizes, bench.prepared(sizes, transposed))).collect();
    if options.wait {
        println!("ready");
        if stdin().read_line(&mut String::new()).is_err() {
            return ExitCode::FAILURE;
        }
    }
    for (name, [rows, inner, columns], product) in prepared {
        let about =
            json!({ "command": "products", "strategy": wanted, "dtype": options.precision, "what": name, "sizes": [rows, inner, columns] });
        let mut line = about.as_object().expect("the line is an object").clone();
        match product.and_then(|product| bench.seconds(&product)) {
            Ok(seconds) => {
                line.insert("ms".to_owned(), json!(seconds * 1e3));
                line.insert("tflops".to_owned(), json!(2.0 * (rows * inner * columns) as f64 / seconds / 1e12));
            }
            Err(error) => drop(line.insert("error".to_owned(), json!(error))),
        }
        println!("{}", serde_json::Value::Object(line));
    }
    ExitCode::SUCCESS
}

/// A matrix in memory, and how it is read.
struct Matrix {
    memory: Handle,
    sizes: [usize; 2],
    strides: [usize; 2],
}

impl Matrix {
    fn binding(&self) -> TensorBinding {
        // SAFETY: the memory holds as many numbers as the sizes say, and the strides are those of rows without gaps or of their transpose.
        unsafe { TensorBinding::from_raw_parts(self.memory.clone(), self.strides.into(), self.sizes.into()) }
    }
}

/// What is multiplied how.
struct Bench {
    client: Client,
    strategy: Strategy,
    is_bf16: bool,
}

impl Bench {
    fn element(&self) -> ElemType {
        ElemType::Float(if self.is_bf16 { FloatKind::BF16 } else { FloatKind::F32 })
    }

    /// A matrix of numbers between -0.5 and 0.5.
    fn matrix(&self, [rows, columns]: [usize; 2], is_transposed: bool) -> Matrix {
        let numbers = (0..rows * columns).map(|index| (index as f64 * 0.618_033_988_749_895).fract() as f32 - 0.5);
        let memory = if self.is_bf16 {
            let numbers: Vec<u8> = numbers.flat_map(|number| bf16::from_f32(number).to_le_bytes()).collect();
            self.client.create_from_slice(&numbers)
        } else {
            let numbers: Vec<u8> = numbers.flat_map(f32::to_le_bytes).collect();
            self.client.create_from_slice(&numbers)
        };
        let strides = if is_transposed { [1, rows] } else { [columns, 1] };
        Matrix { memory, sizes: [rows, columns], strides }
    }

    /// The factors and the result, after a first product of them.
    fn prepared(&self, [rows, inner, columns]: [usize; 3], [left, right]: [bool; 2]) -> Result<[Matrix; 3], String> {
        let product = [self.matrix([rows, inner], left), self.matrix([inner, columns], right), self.matrix([rows, columns], false)];
        self.multiply(&product)?;
        self.wait()?;
        Ok(product)
    }

    fn multiply(&self, [left, right, result]: &[Matrix; 3]) -> Result<(), String> {
        let element = self.element();
        let input = |matrix: &Matrix| InputBinding::new(matrix.binding(), element);
        let mut types = MatmulElems::from_globals(&MatmulGlobalElems { lhs: element, rhs: element, out: element });
        let launch = || launch_ref(&self.strategy, &self.client, input(left), input(right), result.binding(), &mut types);
        match catch_unwind(AssertUnwindSafe(launch)) {
            Ok(launched) => launched.map_err(|error| format!("{error:?}")),
            Err(_) => Err("the launch panicked".to_owned()),
        }
    }

    fn wait(&self) -> Result<(), String> {
        block_on(self.client.sync()).map_err(|error| format!("{error:?}"))
    }

    /// Seconds of a product, the mean of repetitions without a pause.
    fn seconds(&self, product: &[Matrix; 3]) -> Result<f64, String> {
        self.multiply(product)?;
        self.wait()?;
        let begun = Instant::now();
        for _ in 0..REPETITIONS {
            self.multiply(product)?;
        }
        self.wait()?;
        Ok(begun.elapsed().as_secs_f64() / REPETITIONS as f64)
    }
}

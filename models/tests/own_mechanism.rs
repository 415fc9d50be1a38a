//! Runs the example of a user's own mechanism.

#[path = "../examples/own_mechanism.rs"]
mod own_mechanism;

use burn::tensor::Device;
use heedful_attention::prelude::*;
use heedful_attention::registry::RegistryError;
use own_mechanism::RecencyConfig;
use serde::{Deserialize, Serialize};

/// One test, since the registry is that of the whole program.
#[test]
fn an_own_mechanism_conforms_and_is_known_by_its_name_once_it_is_registered() {
    assert!(matches!("recency".parse::<AnyMechanism>(), Err(ConfigError::UnknownAttention { .. })));
    own_mechanism::main().unwrap();
    for name in ["recency", "recency+dot-product", "recency@local-1d", "dot-product+recency@sparse-fixed"] {
        let parsed: AnyMechanism = name.parse().unwrap();
        assert_eq!(parsed.name(), name);
        let place = LayerSpec::new(Role::Decoder, 4, 2).with_max_length(8);
        assert_eq!(parsed.validate(&place), Ok(()));
        parsed.init(&place, &RandomKey::from_seed(1), &Device::flex());
    }
    assert!(AnyMechanism::names().contains(&"recency") && AnyMechanism::families().contains(&"recency"));
    // The name may stand behind the options.
    for text in ["{\"name\": \"recency\", \"mean\": -1.5}", "{\"mean\": -1.5, \"name\": \"recency\"}"] {
        let read: AnyMechanism = serde_json::from_str(text).unwrap();
        assert_eq!(read.get::<RecencyConfig>(), Some(&RecencyConfig { mean: -1.5 }));
        assert_eq!(serde_json::to_string(&read).unwrap(), "{\"name\":\"recency\",\"mean\":-1.5}");
    }
    let unknown = serde_json::from_str::<AnyMechanism>("{\"name\": \"recency\", \"maen\": 1}").unwrap_err().to_string();
    assert!(unknown.contains("maen"), "{unknown}");
    assert_eq!(register::<RecencyConfig>(), Err(RegistryError::Taken("recency")));
    assert_eq!(register::<Refused<4>>(), Err(RegistryError::Malformed("a+b")));
    assert_eq!(register::<Refused<0>>(), Err(RegistryError::Taken("dot-product")));
    assert_eq!(register::<Refused<1>>(), Err(RegistryError::Taken("random")));
    assert_eq!(register::<Refused<2>>(), Err(RegistryError::Taken("recency")));
    assert_eq!(register::<Refused<3>>(), Err(RegistryError::Malformed("a b")));
    assert_eq!(register::<Refused<5>>(), Err(RegistryError::NoVariant("unnamed")));
    assert_eq!("dot-product".parse::<AnyMechanism>().unwrap().family(), "dot-product");
    register::<Borrowing>().unwrap();
    assert_eq!("borrowing".parse::<AnyMechanism>().unwrap().family(), "borrowing");
}

/// A mechanism with another spelling that is taken, or is none (cases 0 to 3), with a name that would be a mixture (4), or whose parameters would have no part of
/// their paths that says which it is (5).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Refused<const CASE: usize> {}

impl<const CASE: usize> Mechanism for Refused<CASE> {
    type Module = AnyAttention;
    const NAME: &'static str = ["usurper", "usurper", "usurper", "usurper", "a+b", "unnamed"][CASE];
    const CARD: Card = Card {
        variant: if CASE == 5 { "" } else { "Refused" },
        // A name, a spelling, a name of a user's own, and a text that cannot stand in `a+b@c`.
        aliases: match CASE {
            0 => &[("dot-product", "usurper")],
            1 => &[("random", "usurper")],
            2 => &[("recency", "usurper")],
            3 => &[("a b", "usurper")],
            _ => &[],
        },
        ..Card::DEFAULT
    };

    fn init(&self, spec: &LayerSpec, key: &RandomKey, device: &Device) -> AnyAttention {
        AnyMechanism::default().init(spec, key, device)
    }
}

/// A mechanism whose default options are found by a name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Borrowing {
    from: AnyMechanism,
}

impl Default for Borrowing {
    fn default() -> Self {
        Self { from: "dot-product".parse().unwrap() }
    }
}

impl Mechanism for Borrowing {
    type Module = AnyAttention;
    const NAME: &'static str = "borrowing";
    const CARD: Card = Card { variant: "Borrowing", ..Card::DEFAULT };

    fn init(&self, spec: &LayerSpec, key: &RandomKey, device: &Device) -> AnyAttention {
        self.from.init(spec, key, device)
    }
}

#[test]
fn an_own_mechanism_learns() {
    let losses = own_mechanism::train(60);
    assert!(losses[0] > 1.0 && losses[59] < 0.3, "from {} to {}", losses[0], losses[59]);
}

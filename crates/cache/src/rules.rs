//! The rules of a cache: a policy and the bounds of its partition, made from a valid configuration.

use crate::config::{CacheConfig, ConfigError};
use crate::index::UNITS_MAX;
use crate::partition::{GROUPS_MAX, Partition};
use crate::policy::{CachePolicy, PolicyConfig, PolicyEntry};

/// What a cache decides by.
pub(crate) struct Rules {
    pub policy: Box<dyn CachePolicy>,
    pub partition: Partition,
}

impl Rules {
    pub fn new(config: &CacheConfig, policy: &PolicyEntry) -> Result<Rules, ConfigError> {
        let error = |field, got: String, allowed: String| Err(ConfigError { field, got, allowed });
        if !(1..=UNITS_MAX).contains(&config.units) {
            return error("units", config.units.to_string(), format!("1 to {UNITS_MAX}"));
        }
        if !(1..=config.units).contains(&config.watermark_high) {
            return error("watermark_high", config.watermark_high.to_string(), format!("1 to {}", config.units));
        }
        if !(1..=config.watermark_high).contains(&config.watermark_low) {
            return error("watermark_low", config.watermark_low.to_string(), format!("1 to {}", config.watermark_high));
        }
        if let Some((pool, part)) = config.pools.iter().find(|(_, part)| !(*part > 0.0 && *part <= 1.0)) {
            return error("pools", format!("{part} for pool {}", pool.number()), "above 0 and at most 1".into());
        }
        let Some(partition) = Partition::new(config.units, &config.scheme, &config.pools) else {
            let got = format!("{} pools with a bound", config.pools.len());
            let allowed = format!("(classes with a bound + 1) x (pools with one + 1) up to {GROUPS_MAX}");
            return error("pools", got, allowed);
        };
        let made_from = PolicyConfig { cache: config, groups: partition.groups() };
        Ok(Rules { policy: (policy.build)(&made_from), partition })
    }
}

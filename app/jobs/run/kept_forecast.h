#pragma once

#include <span>
#include <string>
#include <vector>

#include "app/jobs/run/model_cache.h"

/// Keeps the measured costs of --tree quick in the user's cache folder (forecasts.json). Each start on a
/// machine then chooses the same setting.
namespace draftscope {

/// Names what a forecast depends on: machine, files, threads, precision, shipped acceptance and version.
std::string forecast_key(const ResolvedRun& run, const ModelCache& models);
/// Returns the forecasts that were kept under `key`, fastest first; empty if there are none.
std::vector<SweepSetting> load_forecasts(const std::string& key, const ShippedAcceptance& shipped);
/// Replaces what is kept under `key`. A warning tells if it can't be written.
void save_forecasts(const std::string& key, std::span<const SweepSetting> forecasts);

}  // namespace draftscope

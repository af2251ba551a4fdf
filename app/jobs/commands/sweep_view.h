#pragma once

#include <optional>
#include <string>
#include <vector>

#include "app/jobs/commands/run_config.h"
#include "stats/sweep_table.h"

/// Requests and results of the Sweep and Advisor panels. Plain data, without the engine.
namespace draftscope {

/// Options of a sweep or search that the window starts. Lists are comma-separated, as on the command line.
struct SweepRequest {
    bool search = false;  ///< as `advise`: the trees and sizes are searched
    std::string recording, profile;
    std::string model;  ///< "" = recording or demo model
    std::string drafters = "eagle3";
    std::string heads = "full";  ///< "" with `search` = every head that has its files
    int batch = 1;
    int threads = 0;
    std::string save;  ///< capture; "" = none
    bool operator==(const SweepRequest&) const = default;
};

/// What `advise` says of a sweep (app/jobs/sweep/advice.h).
struct AdviceView {
    std::string summary;               ///< "" = unknown
    std::vector<std::string> changes;  ///< what would change the choice
    std::string run_line;
    std::vector<std::string> serving;              ///< options of serving stacks
    bool plain = false;                            ///< it advises to decode without a drafter
    std::optional<std::size_t> chosen, runner_up;  ///< places in SweepView::settings
};

/// The settings of a sweep with their figures.
struct SweepView {
    std::string file;       ///< capture that holds it; "" = made in this window
    std::string source;     ///< what identifies the acceptance: recording, lengths, precision
    std::string recording;  ///< folder; "" = unknown
    std::string model;      ///< as for `run`
    /// A run of the sweep's model and recorded prompts as they were recorded, with the profile's threads and
    /// precision. Drafter, head and tree are a setting's.
    RunConfig run;
    std::string costs;  ///< machine and kind of the profile; "" = unknown
    std::size_t conversations = 0;
    std::vector<std::string> categories;  ///< by conversation; empty = unknown
    int max_new = 0;
    std::vector<SweepSetting> settings;
    std::vector<SweepRow> rows;        ///< of `settings`, fastest first by batch
    std::vector<SweepOracle> oracles;  ///< of single drafters
    std::optional<std::size_t> usual;  ///< place in `rows` of the setting that `run` uses by default
    AdviceView advice;
    std::vector<std::string> notes;  ///< estimates and skipped settings, with reasons
};

/// A setting to replay along one conversation of a recording.
struct SettingReplay {
    std::string recording, model, drafter, head, tree;
    std::vector<std::string> artefacts;  ///< HEAD=PATH
    std::size_t conversation = 0, conversations = 1;
    int max_new = 0;  ///< 0 = as recorded
    int threads = 0;
    bool operator==(const SettingReplay&) const = default;
};

}  // namespace draftscope

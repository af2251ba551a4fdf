#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace draftscope {

/// A part of a set of conversations: every `count`-th one, from number `index` on. The shards 1/n to n/n
/// partition the set.
struct Shard {
    int index = 1;  ///< from 1
    int count = 1;

    bool whole() const { return count == 1; }
    /// Returns whether the shard has the conversation at this place of the whole set, from 0.
    bool has(std::size_t place) const {
        return place % static_cast<std::size_t>(count) == static_cast<std::size_t>(index - 1);
    }
    bool operator==(const Shard&) const = default;
};

/// The prompt of the demo. Its answer by the demo model is right.
inline constexpr const char* demo_prompt = "Write a Python function that counts the vowels in a string.";

/// What a tree option stands for, in the window and in the command line's help.
inline constexpr const char* default_tree_name = "default (a fixed tree)";
inline constexpr const char* quick_tree_name = "fastest by forecast (at once, from shipped acceptance)";
inline constexpr const char* measured_tree_name = "fastest by measuring (takes some seconds)";
/// A value of RunConfig::tree: choose from this machine's times and the acceptance shipped with the demo
/// model.
inline constexpr const char* quick_tree = "quick";
/// A value of RunConfig::drafter: the checkpoint that comes with the target, else suffix decoding.
inline constexpr const char* auto_drafter = "auto";
/// The value of --prompts that stands for standard input.
inline constexpr const char* standard_input = "-";
/// A value of RunConfig::baseline: the first conversation, or batch, if plain decoding of it takes a moment.
inline constexpr int short_baseline = -1;

/// Options of a run, as text that a user types. Used by the command line and the window. "" = default.
struct RunConfig {
    std::string model;                  ///< "" = demo model
    std::string drafter = "eagle3";     ///< NAME[:PATH] or auto
    bool drafter_is_automatic = false;  ///< auto was given, and `drafter` is what it stands for
    std::string head = "full";
    std::vector<std::string> artefacts;  ///< HEAD=PATH
    std::string tree;                    ///< "" = the backend's default
    std::string verify = "match";
    std::string backend = "cpu";      ///< cpu, cuda, auto
    std::string numerics = "exact";   ///< exact, fast, fast:ROWS
    bool gpu_graphs = true;           ///< launch passes as CUDA graphs
    bool l2_window = false;           ///< keep a head's packed rows in the GPU's L2
    std::string acceptance = "real";  ///< real, rate:R, trace:FILE
    std::string precision = "auto";   ///< f32, bf16, int8, auto
    double temperature = 0;
    double top_p = 1.0;
    int top_k = 0;
    std::uint64_t seed = 0;
    int max_new = 128;
    int context = 0;         ///< maximum positions of a sequence; 0 = the model's
    int batch = 1;           ///< sequences decoded in lockstep
    int threads = 0;         ///< 0 = all cores
    bool pin = false;        ///< pin each worker thread to a CPU
    std::string tier = "0";  ///< 0, 1, 2: depth of the measurement (profiler/cupti/tier.h)
    bool ignore_eos = false;
    bool raw = false;                            ///< no chat template
    std::vector<std::string> template_switches;  ///< KEY=VALUE, variables of the chat template
    std::string system;        ///< system turn of every conversation; "" = the chat template's own, if any
    std::string prompt;        ///< one prompt, or ...
    std::string prompts_file;  ///< ... JSONL, or the folder of a recording
    int limit = 0;             ///< conversations, 0 = all
    bool balanced = false;
    Shard shard;                 ///< of the conversations that limit and balanced select
    int baseline = 0;            ///< conversations also decoded without a drafter, or short_baseline
    std::string shadow;          ///< shadow heads, in the syntax of --heads; "" = none
    int calibration_rounds = 4;  ///< rounds of each prompt in which the full head also drafts; 0 = off
    std::string save;            ///< capture file, "" = none
    bool overwrite = false;
    bool resume = false;            ///< continue the run that `save` holds
    std::int64_t save_rows = 0;     ///< the capture's limit in rows, 0 = none
    std::uint64_t save_size = 0;    ///< ... and in bytes
    bool save_ring = false;         ///< at the limit, drop the oldest steps; otherwise stop recording
    bool drop_when_full = false;    ///< drop and count rows instead of blocking when the disk is slow
    std::vector<std::string> tags;  ///< KEY=VALUE, stored with the run
    bool operator==(const RunConfig&) const = default;
};

}  // namespace draftscope

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "capture/rows.h"

/// The normalised setting of a run. It defines, for C++ and SQL, which runs belong in one comparison.
///
/// The capture file stores plain_setting() and head_setting() with each run, so that its views compare the
/// same runs as the program. Neither contains the seed: runs that differ only in the seed repeat one setting.
namespace draftscope {

/// The meaning of a difference between two runs in a field.
enum class SettingKind : std::uint8_t {
    source,   ///< another target, machine or tier: the numbers do not belong in one file
    work,     ///< other texts were decoded: sampling, length, end of text
    subject,  ///< what a comparison may be about: precision, threads, drafter, tree
};

/// One field of a run's setting.
struct SettingField {
    std::string key;    ///< key in the stored JSON object: "max_new"
    std::string label;  ///< key shown to the user: "max-new"
    std::string text;   ///< value shown to the user
    std::string value;  ///< the value as JSON
    SettingKind kind = SettingKind::source;
    bool drafting = false;  ///< has no effect on decoding without a drafter
};
/// Returns every known field, by key. Fields that a run lacks (old captures) are left out. So are fields
/// without effect: top-p, top-k and the acceptance rule at temperature 0.
std::vector<SettingField> setting_fields(const RunRow& run);

/// Returns a JSON object that is equal if decoding without a drafter would be the same measurement.
std::string plain_setting(const RunRow& run);
/// Returns a JSON object that is equal if two runs differ at most in draft LM head and seed.
std::string head_setting(const RunRow& run);
/// Returns a JSON object that is equal for repeats: head_setting(), the head and the contents of its source
/// files.
std::string repeat_setting(const RunRow& run);

/// Drafter of autoregressive decoding.
inline constexpr std::string_view plain_drafter = "none";
/// Returns whether the run was decoded without a drafter as the reference of the next run (`run --baseline`).
bool is_baseline(const RunRow& run);
/// Returns the number of prompts that the run was given, turns counted one by one; 0 = unknown.
std::int64_t planned_prompts(const RunRow& run);
inline constexpr std::string_view planned_prompts_key = "prompts";  ///< in `config_json`
/// Key in `config_json` of the number of conversations that the model could not take.
inline constexpr const char* skipped_key = "skipped_conversations";
/// Key in `config_json` and its value in a baseline run.
inline constexpr std::string_view role_key = "role", baseline_role = "baseline";

/// Key in `config_json` of a run's shard: an object with `index` and `count`. Null if the run decoded all
/// conversations. The first index is 1.
inline constexpr std::string_view shard_key = "shard";
/// Key in `config_json` of a bench's run: an object with `method`, `repetition` and `control`. Repetitions
/// are counted from 0. A control run measures the noise floor.
inline constexpr std::string_view bench_key = "bench";

/// Key in `config_json` of the recording along which the rounds of a swept setting were replayed.
inline constexpr std::string_view replayed_recording_key = "recording";

/// Value of RunRow::acceptance: another engine decoded, and its word is taken.
inline constexpr std::string_view imported_acceptance = "imported";
/// Counters of an imported run: sums over rounds that the file does not list one by one. `drafted_sum` also
/// counts the drafts of listed rounds whose own number is not known.
inline constexpr std::string_view rounds_sum = "rounds_sum", accepted_sum = "accepted_sum",
                                  drafted_sum = "drafted_sum";
/// Returns "not known" for an empty text of an imported run.
inline std::string or_unknown(const std::string& text) {
    return text.empty() ? "not known" : text;
}
/// Key in `config_json` of the header of an imported run.
inline constexpr const char* import_key = "import";

/// Returns the memory read bandwidth in GB/s that `draftscope doctor` measured with the run's thread count.
/// Absent if it was not measured.
std::optional<double> probed_gb_per_s(const RunRow& run);
/// As probed_gb_per_s(), for scattered rows.
std::optional<double> probed_scattered_gb_per_s(const RunRow& run);

/// Returns what the ranking was counted on by which tokens have ranks; "" = unknown or none.
std::string ranking_source(const RunRow& run);
inline constexpr std::string_view ranking_key = "ranking";  ///< in `config_json`

/// Key in `config_json` of the losslessness of the run's acceptance rule; see losslessness().
inline constexpr std::string_view losslessness_key = "losslessness";

/// Returns the keys of `config_json` that these functions and losslessness() read. None of them holds prompt
/// text.
const std::vector<std::string_view>& setting_config_keys();

}  // namespace draftscope

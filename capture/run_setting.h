#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "capture/rows.h"

/// The normalised setting of a run: one definition, for C++ and SQL, of which runs belong in one comparison.
///
/// The capture file stores plain_setting() and head_setting() with each run, so that its views compare what
/// the program does. A seed is in neither: runs that differ in the seed alone repeat one setting.
namespace draftscope {

/// What a field says about two runs that differ in it.
enum class SettingKind : std::uint8_t {
    source,   ///< another target, machine or tier: their numbers do not belong in one file
    work,     ///< other texts were decoded: sampling, length, where a text ends
    subject,  ///< what a comparison may be about: precision, threads, drafter, tree
};

struct SettingField {
    std::string key;    ///< in the stored JSON object: "max_new"
    std::string label;  ///< for people: "max-new"
    std::string text;   ///< the value for people
    std::string value;  ///< the value as JSON
    SettingKind kind = SettingKind::source;
    bool drafting = false;  ///< says nothing about decoding without a drafter
};
/// Every known field, by key. What a run does not say (old captures) is left out, and so is what has no
/// effect: top-p, top-k and the rule of verification at temperature 0.
std::vector<SettingField> setting_fields(const RunRow& run);

/// Equal where decoding without a drafter would be the same measurement. A JSON object.
std::string plain_setting(const RunRow& run);
/// Equal where two runs can differ in the draft LM head and the seed only. A JSON object.
std::string head_setting(const RunRow& run);
/// Equal for repeats: head_setting(), the head and the contents of the files it was made from.
std::string repeat_setting(const RunRow& run);

/// The drafter of autoregressive decoding.
inline constexpr std::string_view plain_drafter = "none";
/// Whether the run was decoded without a drafter as the reference of the run after it (`run --baseline`).
bool is_baseline(const RunRow& run);
/// Field of `config_json` and its value in such a run.
inline constexpr std::string_view role_key = "role", baseline_role = "baseline";

/// The fields of `config_json` that these functions read; none of them holds a text of a prompt.
const std::vector<std::string_view>& setting_config_keys();

}  // namespace draftscope

#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "capture/rows.h"

/// Traits of draft LM heads that a capture states for the window, which does not know the engine's registry.
namespace draftscope {

/// The exact LM head, the reference of every comparison in a capture and its views.
inline constexpr std::string_view full_head_id = "full";
constexpr bool is_full_head(std::string_view head) {
    return head == full_head_id;
}

/// Returns the id of a head's spec: "fr-spec" of "fr-spec:v=8192+rdk".
constexpr std::string_view head_id(std::string_view spec) {
    return spec.substr(0, spec.find_first_of(":+"));
}

/// The tokens that a head can propose.
enum class HeadSupport : std::uint8_t {
    all,      ///< every token
    fixed,    ///< a set that is chosen before the run
    dynamic,  ///< a set that depends on the context
};

struct HeadTraits {
    std::uint32_t rgb = 0xA0A8B0;  ///< colour for dark backgrounds; grey = an unknown head
    HeadSupport support = HeadSupport::fixed;
    bool ranked = false;  ///< its set follows a token ranking
    /// Replays and shadows are estimates, because they show it less than a live round does.
    bool replay_estimate = false;
    bool operator==(const HeadTraits&) const = default;
};

/// Why replays and shadows with HeadTraits::replay_estimate are estimates, and how far off they were.
/// Measured with `record` of 48 conversations of Spec-Bench, `replay`, and `run` of the same prompts.
inline constexpr std::string_view replay_estimate_note =
    "the head takes candidates from every node of a live tree, but here the target's tokens are known along "
    "one path only (demo, eagle3: tau is 5 % too low with a tree of 12 nodes, 1 % with chain=2)";

/// Key in `config_json`: an object from each head of the run to its traits. It holds no prompt text.
inline constexpr std::string_view head_traits_key = "head_traits";
/// Returns the value of that key as JSON.
std::string to_json(const std::map<std::string, HeadTraits>& heads);

/// Returns the traits of a published result's head, or of a head in a capture without `head_traits`. `head`
/// is an id or a spec ("fr-spec:v=8192+rdk").
HeadTraits published_head_traits(std::string_view head);

/// The traits of a run's heads, read once from its `config_json`.
class RunHeadTraits {
  public:
    explicit RunHeadTraits(const RunRow& run);
    HeadTraits of(const std::string& head) const;

  private:
    std::map<std::string, HeadTraits, std::less<>> heads_;
};

}  // namespace draftscope

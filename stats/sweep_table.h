#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "stats/bootstrap.h"
#include "stats/machine_profile.h"

/// Ranks drafting settings by predicted speed: acceptance from a recording, time of a round from a machine
/// profile. Pure maths.
namespace draftscope {

/// Acceptance of a setting in one conversation, or in several.
struct SweepUnit {
    double rounds = 0, committed = 0;
    double positions = 0;  ///< committed tokens before each round, summed; 0 = unknown
    double accepted = -1;  ///< drafts, also those that the end of a text cut off; -1 = unknown
    std::optional<double> tau() const {
        return rounds > 0 ? std::optional(committed / rounds) : std::nullopt;
    }
    /// Returns the tokens of tau_unclipped; the committed ones if the drafts are unknown.
    double unclipped() const { return accepted < 0 ? committed : rounds + accepted; }
    /// Returns the mean context of the rounds. It differs from that of the tokens: hard parts of a text have
    /// more rounds.
    std::optional<double> context() const {
        return rounds > 0 && positions > 0 ? std::optional(positions / rounds) : std::nullopt;
    }
};
/// As TreeSpec: depth = drafter forwards after the first; nodes include the root. topk = 1 is a chain.
struct TreeShape {
    int depth = 0, topk = 1, nodes = 2;
    bool operator==(const TreeShape&) const = default;
};
/// What names a setting. The texts are as for `run`; head "" = the drafter uses none.
struct SettingKey {
    std::string drafter, head, tree;
    int batch = 1;
    auto operator<=>(const SettingKey&) const = default;
};

/// Predicted figures of a setting. Intervals resample conversations and include the profile's error.
struct SettingFigures {
    Estimate tau, tokens_per_second;
    Estimate speedup;                      ///< over decoding without a drafter
    std::optional<Estimate> against_full;  ///< speed over that of `full`
    /// No setting of the same batch accepts as much in less time.
    bool on_front = false;
    /// Not distinguishable from the fastest setting of its batch: the interval of the ratio holds 1. Absent
    /// without an interval.
    std::optional<bool> ties_with_best;
};

/// A setting whose acceptance and cost are known.
struct SweepSetting : SettingKey {
    std::string weights;           ///< identifies the files of drafter and head; "" = unknown
    TreeShape shape;               ///< of `tree`
    std::vector<SweepUnit> units;  ///< by conversation, the same ones for all settings
    std::vector<double> lengths;   ///< rounds by draft tokens, of an adaptive length; else empty
    double round_ms = 0;           ///< predicted time of a step
    double head_ms = 0;            ///< the LM head's part of it; 0 if it is not known apart
    double plain_ms = 0;           ///< predicted time of a step without a drafter, at the same batch
    /// Relative errors of round_ms and of plain_ms / round_ms; absent = unknown.
    std::optional<double> cost_error, speedup_error;
    std::vector<CurveTime> curves;  ///< of round_ms; empty = unknown
    bool extrapolated = false;      ///< the profile was not measured at such a size
    bool exact = true;              ///< false: the acceptance is an estimate
    // What rank_settings() finds:
    /// Place of the same drafter, tree and batch with the full head in the list of settings.
    std::optional<std::size_t> full;
    SettingFigures figures;

    SweepUnit total() const;
    /// Tokens per second of all sequences, and speed over decoding without a drafter; 0 without rounds.
    double speed() const;
    double speedup() const;
};

/// A bound: every round drafts a chain of exactly the accepted length.
struct OracleLine {
    /// One drafter, or two. Of two, each round takes the longer draft, the first one's if they are equal.
    std::vector<std::string> drafters;
    std::string head;  ///< of the last drafter; "" = none
    std::string weights;
    int levels = 0;  ///< a draft is at most as long
    int batch = 1;
    /// Rounds by drafter and committed tokens: [drafter][tokens].
    std::vector<std::vector<double>> rounds;
    /// Committed tokens before each of these rounds, summed: as `rounds`. Empty = unknown.
    std::vector<std::vector<double>> positions;
    double round_ms = 0, plain_ms = 0;  ///< predicted

    double count() const;
    double tau() const;
    double tokens_per_second() const { return round_ms > 0 ? 1e3 * batch * tau() / round_ms : 0; }
    double speedup() const { return round_ms > 0 ? tau() * plain_ms / round_ms : 0; }
};

/// Returns "eagle3 x microspec", or the drafter alone if it uses no head.
std::string pair_text(std::string_view drafter, std::string_view head);
/// Returns "eagle3 x fr-spec:v=8192 @ chain=3".
std::string setting_name(const SettingKey& setting);
/// Returns the text with the last part of each path: "eagle2:/models/e2 x full" becomes "eagle2:e2 x full".
std::string shorten_paths(std::string_view text);
/// Returns setting_name() with the last part of each path.
std::string short_name(const SettingKey& setting);

/// Sets the figures of settings and puts them in order, fastest first by batch in ascending order. Settings
/// without rounds or cost are dropped. Time grows with their number, memory does not.
void rank_settings(std::vector<SweepSetting>& settings, const BootstrapOptions& options = {});
/// Sets SweepSetting::full of every setting.
void link_full_heads(std::vector<SweepSetting>& settings);

/// Resampled conversations that comparisons of settings share.
class SettingDraws {
  public:
    static constexpr std::size_t none = static_cast<std::size_t>(-1);

    /// Fewer than min_conversations give no intervals.
    explicit SettingDraws(std::size_t conversations, const BootstrapOptions& options = {});

    /// Returns tau by draw, empty without intervals. The conversation `left_out` does not count.
    std::vector<double> taus(const SweepSetting& setting, std::size_t left_out = none) const;
    /// Returns the value with the spread of its draws and a relative error.
    Estimate estimate(double value, const std::vector<double>& draws, double relative_error) const;
    /// Returns the speed of one setting over that of another of the same batch. `base_taus` are those of
    /// `base`. Absent without rounds.
    std::optional<Estimate> ratio(const SweepSetting& setting, const SweepSetting& base,
                                  const std::vector<double>& base_taus, std::size_t left_out = none) const;

  private:
    std::size_t conversations_;
    BootstrapOptions options_;
    std::vector<std::uint32_t> times_drawn_;  ///< [draws, conversations]
};

/// Expands alternatives: "fr-spec:v=2048|4096" gives "fr-spec:v=2048" and "fr-spec:v=4096"; several
/// parameters give all combinations.
std::vector<std::string> expand_alternatives(const std::string& spec);

}  // namespace draftscope

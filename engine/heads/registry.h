#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "capture/head_traits.h"
#include "engine/heads/head.h"

/// The registry of heads: everything that other folders must know of a head. They read these traits instead
/// of comparing ids.
namespace draftscope {

/// A parameter of a head spec.
struct HeadParam {
    std::string_view name;
    double default_value = 0;
    double min = 0, max = 0;
    bool our_default = false;  ///< not stated in the paper
    std::string_view help;
    bool list = false;  ///< accepts a list per draft level, "16384/8192"; the range applies to each value
    std::string_view choices = {};  ///< "both|ctx|ext": allowed words, the first is the default
};

/// The parameter that a head's cost depends on, with the values that machine profiles measure (our choice).
struct HeadSizeParam {
    enum class Unit : std::uint8_t { one, vocab, hidden };
    std::string_view name = {};  ///< "" = none
    Unit unit = Unit::one;       ///< what the values are multiples of
    std::array<double, 4> values = {};
    int default_parts = 0;  ///< by default the head keeps vocab_fraction() with this; 0 = another rule
    bool max_rows = false;  ///< bounds the rows of the LM head that a call reads; calls may read fewer
};

/// File that a head requires in addition to the model's weights (docs/FORMATS.md).
enum class RequiredFile {
    none,
    ranking,  ///< a token ranking
    fitted,   ///< a head artefact (engine/heads/artefact.h)
    either,   ///< a ranking, or the artefact of a trained head
};

/// How `draftscope fit` makes a head's file.
struct FitRecipe {
    /// What is made, as bits.
    enum Kind : unsigned {
        raw_text = 1,      ///< a ranking: counts the tokens of raw text
        generations = 2,   ///< a ranking: counts the tokens of the target's generations
        low_rank = 4,      ///< two factors of the LM head, trained by forward KL
        trimmed_rows = 8,  ///< the LM head's rows of the kept tokens, trained by forward KL
        alpha_rows = 16,   ///< as trimmed_rows, but alpha determines their number; made on request only
        clusters = 32,     ///< clusters of any size, with a router on embedding and parent hidden
        groups = 64,       ///< groups of equal size, with a router on the hidden
        affinity = 128,    ///< neighbours of each token; trains nothing
        own_loss = 256,    ///< low_rank: a joint fit adds lambda times the head's own loss
    };
    static constexpr unsigned rankings = raw_text | generations;
    static constexpr unsigned any_trimmed_rows = trimmed_rows | alpha_rows;
    /// Forward KL to the target. Only these fits can train the drafter, too.
    static constexpr unsigned by_divergence = low_rank | any_trimmed_rows;
    static constexpr unsigned routers = clusters | groups;
    static constexpr unsigned weights = by_divergence | routers | affinity;
    static constexpr unsigned any = rankings | weights;

    unsigned kinds = 0;
    std::string_view up = {};  ///< low_rank: the artefact's name of the factor [V, rank]

    bool has(unsigned any_of) const { return (kinds & any_of) != 0; }
};

struct SyntheticBuilder;

/// Registry entry of a head.
struct HeadInfo {
    std::string_view id;
    std::string_view name;
    std::string_view paper;  ///< "FR-Spec, arXiv 2502.14856"
    std::span<const HeadParam> params = {};
    HeadSizeParam size = {};
    std::uint32_t rgb = HeadTraits().rgb;
    HeadSupport support = HeadSupport::fixed;
    RequiredFile required_file = RequiredFile::none;
    std::string_view artefact = {};  ///< required file, for help texts; "" = none
    FitRecipe fit = {};
    /// Adds random weights for synthetic targets (engine/heads/synthetic_artefact.h); null = the head has
    /// none, or its file is a ranking.
    Status (*synthesize)(SyntheticBuilder&) = nullptr;
    Result<std::unique_ptr<LmHead>> (*make)(const HeadSpec&, const HeadFiles&) = nullptr;
    bool replay_only = false;  ///< needs a recorded text: a what-if, not usable for decoding

    bool accepts_ranking() const {
        return required_file == RequiredFile::ranking || required_file == RequiredFile::either;
    }
    bool accepts_artefact() const {
        return required_file == RequiredFile::fitted || required_file == RequiredFile::either;
    }
};

/// The registry: one entry per head, in the papers' order.
std::span<const HeadInfo> head_registry();
const HeadInfo* find_head(std::string_view id);
/// Entry of the suffix +rdk (engine/heads/rdk.h). It is no head, but its file is fitted and given like one's.
const HeadInfo& rdk_suffix();
/// Returns a head's entry, or that of the suffix; null for an unknown id.
const HeadInfo* find_head_or_suffix(std::string_view id);

/// Returns the ids of the heads, and of the suffix, whose recipes have one of these kinds.
std::vector<std::string_view> heads_fitted_by(unsigned kinds);

/// Returns what a capture states about a head of a run.
HeadTraits capture_traits(const HeadSpec& spec);

}  // namespace draftscope

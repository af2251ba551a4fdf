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
    enum class Ranking : std::uint8_t {
        none,
        raw_text,     ///< counts the tokens of raw text
        generations,  ///< counts the tokens of the target's generations
    };
    enum class Weights : std::uint8_t {
        none,
        low_rank,   ///< two factors of the LM head, trained by forward KL
        kept_rows,  ///< the LM head's rows of the kept tokens, trained by forward KL
        clusters,   ///< clusters of any size, with a router on embedding and parent hidden
        groups,     ///< groups of equal size, with a router on the hidden
        affinity,   ///< neighbours of each token; trains nothing
    };
    Ranking ranking = Ranking::none;
    Weights weights = Weights::none;
    std::string_view up = {};      ///< low_rank: the artefact's name of the factor [V, rank]
    bool size_from_alpha = false;  ///< kept_rows: alpha determines the number of rows
    bool own_loss = false;         ///< low_rank: a joint fit adds lambda times the head's own loss

    bool fits() const { return ranks() || fits_weights(); }
    bool ranks() const { return ranking != Ranking::none; }
    bool fits_weights() const { return weights != Weights::none; }
    /// Returns whether a ranking suffices, so that weights are fitted on request only.
    bool fits_weights_on_request() const { return ranks() && fits_weights(); }
    bool fits_low_rank() const { return weights == Weights::low_rank; }
    bool fits_clusters() const { return weights == Weights::clusters; }
    bool fits_groups() const { return weights == Weights::groups; }
    bool fits_affinity() const { return weights == Weights::affinity; }
    /// Forward KL to the target. Only these fits can train the drafter, too.
    bool trains_by_divergence() const { return fits_low_rank() || weights == Weights::kept_rows; }
    bool trains_router() const { return fits_clusters() || fits_groups(); }
    bool takes_size() const { return weights == Weights::kept_rows && !size_from_alpha; }
    bool solves_size() const { return size_from_alpha; }
    bool has_own_loss() const { return own_loss; }
    bool reads_text() const { return ranking == Ranking::raw_text; }
    bool reads_generations() const { return ranking == Ranking::generations; }
    bool reads_recording() const { return reads_generations() || fits_weights(); }
    bool reads_model() const { return reads_text() || fits_weights(); }
    bool reads_ranking() const { return weights == Weights::kept_rows || fits_groups(); }
    bool reads_drafts() const { return trains_by_divergence() || trains_router(); }
    /// The head proposes a part of the vocabulary that the fit selects, counts or evaluates.
    bool limits_tokens() const { return weights == Weights::kept_rows || trains_router(); }
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

/// Returns the ids of the heads, and of the suffix, whose recipes satisfy `wanted`.
std::vector<std::string_view> heads_fitted_by(bool (FitRecipe::*wanted)() const);

/// Returns what a capture states about a head of a run.
HeadTraits capture_traits(const HeadSpec& spec);

}  // namespace draftscope

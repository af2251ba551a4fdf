#include <algorithm>
#include <bit>
#include <limits>
#include <utility>
#include <vector>

#include "engine/draft/drafter_params.h"
#include "engine/draft/registry.h"
#include "engine/draft/text_drafter.h"

namespace draftscope {
namespace {

struct NgramOptions {
    double max = 3;      ///< longest suffix to look up
    double min = 1;      ///< shortest suffix to look up
    double window = 0;   ///< a match must lie in this many latest tokens; 0 = the whole text
    double backoff = 1;  ///< 1: shorten an unknown suffix down to min; 0: look up max only
    double first = 0;    ///< 1: copy the earliest occurrence; 0: the latest
    double hits = 1;     ///< a suffix must have occurred as often before
    double extend = 1;   ///< 1: a repetition that reaches the end of the text continues with its own drafts
    double tokens = 0;   ///< most drafts; 0 = as many as the tree has
    double least = 1;    ///< fewer drafts are not worth a round
    double pool = 0;     ///< 1: what the text lacks is looked up in all texts before
};

/// Published defaults. llama.cpp's are those of ngram-simple.
struct NgramPreset {
    std::string_view name;
    NgramOptions options;
};
constexpr NgramPreset presets[] = {
    {"vllm", {.max = 5, .min = 5, .first = 1, .extend = 0}},
    {"transformers", {.max = 2, .min = 1, .first = 1, .extend = 0, .tokens = 10}},
    {"llama.cpp", {.max = 12, .min = 12, .extend = 0, .tokens = 48, .least = 12}},
};

/// Hash table from n-gram to a position after it. One block of memory for the text length given to the
/// constructor; a longer text reallocates it.
class PositionTable {
  public:
    struct Entry {
        std::uint64_t hash = 0;
        int position = 0;  ///< of the first or the latest occurrence; 0 = the n-gram is absent
        int hits = 0;
    };
    explicit PositionTable(int tokens)
        : entries_(std::bit_ceil(2 * static_cast<std::size_t>(std::max(tokens, 8)))) {}
    /// Requires position > 0.
    void add(std::uint64_t hash, int position, bool keep_first) {
        Entry& entry = entries_[find_entry(hash)];
        used_ += entry.position == 0 ? 1 : 0;
        const bool stays = keep_first && entry.position != 0;
        entry = {hash, stays ? entry.position : position, entry.hits + 1};
        if (2 * used_ > entries_.size()) grow();
    }
    Entry at(std::uint64_t hash) const { return entries_[find_entry(hash)]; }
    void clear() {
        std::fill(entries_.begin(), entries_.end(), Entry());
        used_ = 0;
    }

  private:
    /// Returns the entry of the hash, or the free entry for it. A free entry always exists.
    std::size_t find_entry(std::uint64_t hash) const {
        const std::size_t mask = entries_.size() - 1;
        std::size_t at = static_cast<std::size_t>(hash) & mask;
        while (entries_[at].position != 0 && entries_[at].hash != hash) at = (at + 1) & mask;
        return at;
    }
    void grow() {
        const std::vector<Entry> before = std::exchange(entries_, std::vector<Entry>(2 * entries_.size()));
        for (const Entry& entry : before)
            if (entry.position != 0) entries_[find_entry(entry.hash)] = entry;
    }

    std::vector<Entry> entries_;
    std::size_t used_ = 0;
};

std::uint64_t ngram_hash(std::span<const TokenId> gram) {
    std::uint64_t hash = 0xcbf29ce484222325u;
    for (const TokenId token : gram) {
        hash = (hash ^ static_cast<std::uint32_t>(token)) * 0x100000001b3u;
        hash ^= hash >> 29;
    }
    return hash;
}

std::span<const TokenId> ending_at(std::span<const TokenId> tokens, int end, int n) {
    return tokens.subspan(end - n, n);
}

/// The n-grams of one text, each with an occurrence that has a successor.
class NgramIndex {
  public:
    NgramIndex(const NgramOptions& options, int tokens)
        : options_(options),
          min_(static_cast<int>(options.min)),
          max_(static_cast<int>(options.max)),
          follows_(max_ - min_ + 1, PositionTable(tokens)) {}

    /// Adds what the text has beyond the tokens added before; a shorter text is indexed again.
    void update(std::span<const TokenId> text) {
        const int size = static_cast<int>(text.size());
        if (indexed_ > size) {
            for (PositionTable& positions : follows_) positions.clear();
            indexed_ = 0;
        }
        // An n-gram that ends before position p is only useful once token p follows it.
        for (int p = std::max(indexed_, 1); p < size; ++p)
            for (int n = min_; n <= std::min(max_, p); ++n)
                follows_[n - min_].add(ngram_hash(ending_at(text, p, n)), p, options_.first == 1);
        indexed_ = size;
    }
    /// Returns the position in `text`, which was indexed, behind an occurrence of the longest known suffix of
    /// `tokens` of at most `longest` tokens, or -1.
    int find(std::span<const TokenId> text, std::span<const TokenId> tokens, int longest) const {
        const int size = static_cast<int>(text.size()), last = static_cast<int>(tokens.size());
        for (int n = std::min(max_, longest); n >= min_; --n) {
            const std::span<const TokenId> suffix = ending_at(tokens, last, n);
            const PositionTable::Entry found = follows_[n - min_].at(ngram_hash(suffix));
            const bool counts = found.position > 0 && found.hits >= options_.hits &&
                                (options_.window == 0 || size - found.position <= options_.window);
            if (counts && std::ranges::equal(ending_at(text, found.position, n), suffix))
                return found.position;
            if (options_.backoff == 0) break;
        }
        return -1;
    }

  private:
    NgramOptions options_;
    int min_, max_;
    std::vector<PositionTable> follows_;  ///< per length
    int indexed_ = 0;                     ///< tokens whose preceding n-grams are indexed
};

struct NgramState final : DrafterState {
    NgramState(const NgramOptions& options, int tokens) : index(options, tokens) {}
    NgramIndex index;
    int pooled = -1;  ///< tokens of the text in the pool; -1 = not begun
};

/// Prompt lookup. Looks up the longest suffix of the text that occurred before, and drafts what followed as a
/// chain.
class NgramDrafter final : public TextDrafter {
  public:
    explicit NgramDrafter(const NgramOptions& options)
        : TextDrafter("ngram",
                      {.uses_head = false,
                       .nested_trees = options.least <= 1 && options.pool == 0,
                       .order_matters = options.pool == 1},
                      static_cast<int>(options.tokens)),
          options_(options),
          pool_index_(options, 1024) {}

    void begin_run() override {
        pool_.clear();
        pool_index_.update({});
    }
    std::unique_ptr<DrafterState> make_state(int slots, bool) const override {
        return std::make_unique<NgramState>(options_, slots);
    }

  private:
    void read(DraftJob& job) override {
        auto& state = static_cast<NgramState&>(*job.state);
        state.index.update(job.tokens);
        if (options_.pool == 1) add_to_pool(job.tokens, state);
    }
    Status draft(PhaseRecorder& phases, DraftJob& job) override;
    void add_to_pool(std::span<const TokenId> tokens, NgramState& state);

    NgramOptions options_;
    std::vector<TokenId> pool_;  ///< texts of the run, each behind a no_token
    NgramIndex pool_index_;
};

void NgramDrafter::add_to_pool(std::span<const TokenId> tokens, NgramState& state) {
    if (state.pooled < 0) {
        pool_.push_back(no_token);
        state.pooled = 0;
    }
    const std::size_t known = std::min<std::size_t>(state.pooled, tokens.size());
    pool_.insert(pool_.end(), tokens.begin() + static_cast<std::ptrdiff_t>(known), tokens.end());
    state.pooled = std::max(state.pooled, static_cast<int>(tokens.size()));
    pool_index_.update(pool_);
}

Status NgramDrafter::draft(PhaseRecorder& phases, DraftJob& job) {
    {
        PhaseScope scope(phases, Phase::backbone, 1, 1);
        start_tree(job);
        std::span<const TokenId> text = job.tokens;
        const int tokens = static_cast<int>(text.size());
        int from = static_cast<const NgramState&>(*job.state).index.find(text, text, tokens - 1);
        const bool pooled = from < 0 && options_.pool == 1;
        if (pooled) {
            text = pool_;
            from = pool_index_.find(text, job.tokens, tokens);
        }
        const int size = static_cast<int>(text.size());
        int drafts = from < 0 ? 0 : std::min(job.tree.levels(), job.tree.nodes - 1);
        if (options_.tokens > 0) drafts = std::min(drafts, static_cast<int>(options_.tokens));
        if (options_.extend == 0) drafts = std::min(drafts, size - from);
        if (pooled && from >= 0) {
            const auto rest = text.subspan(from);
            drafts = std::min(drafts, static_cast<int>(std::ranges::find(rest, no_token) - rest.begin()));
        }
        if (drafts < options_.least) drafts = 0;
        // It has no estimate: in a pair, any draft is taken, as in llama.cpp.
        job.score = drafts > 0 ? std::numeric_limits<float>::infinity() : 0.0f;
        for (int i = 0; i < drafts; ++i) {
            // A repetition that reaches the end of the text continues with its own drafts.
            const int p = from + i;
            const TokenId token = p < size ? text[p] : job.out.tokens[p - size + 1];
            job.out.add(token, i, 0.0f);
        }
    }
    PhaseScope scope(phases, Phase::rerank, 0, job.out.size() - 1);
    return job.out.finish();
}

/// `path` is "", a preset's name, parameters, or a preset followed by parameters.
Result<std::unique_ptr<Drafter>> make_ngram(const std::string& path, const Target&, kernels::Backend&) {
    NgramOptions options;
    std::string_view rest = path;
    const std::string_view name = rest.substr(0, rest.find(','));
    if (const auto* preset = std::ranges::find(presets, name, &NgramPreset::name);
        preset != std::end(presets)) {
        options = preset->options;
        rest.remove_prefix(std::min(name.size() + 1, rest.size()));
    }
    const DrafterParam params[] = {{"max", 1, 32, &options.max},
                                   {"min", 1, 32, &options.min},
                                   {"window", 0, 1 << 24, &options.window},
                                   {"backoff", 0, 1, &options.backoff},
                                   {"first", 0, 1, &options.first},
                                   {"hits", 1, 1 << 24, &options.hits},
                                   {"extend", 0, 1, &options.extend},
                                   {"tokens", 0, 1024, &options.tokens},
                                   {"least", 1, 1024, &options.least},
                                   {"pool", 0, 1, &options.pool}};
    DS_TRY(read_params("ngram", rest, params));
    if (options.min > options.max)
        return bad_input("drafter 'ngram': min={} is above max={}", options.min, options.max);
    if (options.first == 1 && options.window > 0)
        return bad_input(
            "drafter 'ngram': first=1 keeps the earliest match, which window={} may leave out; use one of "
            "both",
            options.window);
    return std::unique_ptr<Drafter>(std::make_unique<NgramDrafter>(options));
}

}  // namespace

DrafterInfo describe_ngram() {
    return {
        .id = "ngram",
        .name = "Prompt lookup",
        .help =
            "copies what followed an earlier occurrence of the last words; ngram:max=3,min=1,window=0,"
            "backoff=1,first=0,hits=1,extend=1,tokens=0,least=1,pool=0 sets the lengths to match, the search "
            "window in tokens (0 = all), whether an unknown n-gram is shortened, the earliest or latest "
            "match, how often it must have occurred, whether a repetition may run beyond the text, most and "
            "least drafts, and whether earlier texts of the run are searched; ngram:vllm, ngram:transformers "
            "and ngram:llama.cpp have their defaults",
        .uses_head = false,
        .chains_only = true,
        .needs_weights = false,
        .make = make_ngram};
}

}  // namespace draftscope

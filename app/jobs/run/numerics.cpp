#include "app/jobs/run/numerics.h"

#include <charconv>
#include <map>

#include "app/jobs/run/conversation_feed.h"

namespace draftscope {
namespace {

/// Number of rows from which products are bound by compute rather than memory. Our default, not measured.
constexpr int default_library_rows = 33;
constexpr int max_library_rows = 1 << 20;

}  // namespace

Result<int> parse_numerics(const std::string& text) {
    if (text == "exact") return 0;
    if (text == "fast") return default_library_rows;
    const std::string prefix = "fast:";
    int rows = 0;
    if (text.starts_with(prefix)) {
        const char* const end = text.data() + text.size();
        const auto [at, error] = std::from_chars(text.data() + prefix.size(), end, rows);
        if (error == std::errc() && at == end && rows >= 1 && rows <= max_library_rows) return rows;
        return bad_input("--numerics {}: ROWS of fast:ROWS must be 1 to {}", text, max_library_rows);
    }
    return bad_input("--numerics {}: unknown; known are exact, fast, fast:ROWS", text);
}

Result<std::optional<ExactCheck>> check_fast_run(const ResolvedRun& run, Target& target,
                                                 kernels::Backend& backend, const ChatTemplate& chat,
                                                 const std::vector<Conversation>& conversations,
                                                 const std::vector<PromptReport>& prompts) {
    if (run.library_rows == 0 || backend.is_host()) return std::optional<ExactCheck>();
    DS_TRY(backend.use_cublaslt(0));
    if (run.rule()->info().losslessness != Losslessness::exact) return std::optional<ExactCheck>();
    std::map<int, const PromptOutcome*> outcomes;
    for (const PromptReport& prompt : prompts) outcomes[prompt.ordinal] = &prompt.outcome;
    const Sampling sampling{run.config.temperature, run.config.top_p, run.config.top_k, run.config.seed};
    ExactCheck check;
    for (const Conversation& conversation : conversations) {
        const auto found = outcomes.find(conversation.first_ordinal);
        const auto sequence = static_cast<std::uint64_t>(conversation.first_ordinal);
        if (found == outcomes.end()) continue;
        DS_ASSIGN(const auto prompt, ConversationFeed::first_turn(target, conversation, chat));
        DS_TRY(check_exact(target, backend, sampling, sequence, prompt, found->second->tokens, check));
    }
    return std::optional<ExactCheck>(check);
}

}  // namespace draftscope

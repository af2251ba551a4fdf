#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include "app/jobs/inspect/contents.h"
#include "app/jobs/resolve/assets.h"
#include "app/jobs/resolve/published_drafters.h"
#include "base/json_file.h"
#include "engine/draft/vocabulary_pair.h"

namespace draftscope {
namespace {

/// Published drafters that are named.
constexpr std::size_t max_published = 4;

void add_tokenizer(const ModelFile& file, Inspection& out) {
    const Tokenizer& tokenizer = *file.tokenizer;
    const int rows = file.config.vocab, size = tokenizer.size();
    out.add("vocabulary", fmt::format("{} rows, {} tokens{}; pre-tokenizer {}, eos {}", rows, size,
                                      size < rows ? fmt::format(" and {} rows of padding", rows - size) : "",
                                      tokenizer.pretokenizer(), fmt::join(tokenizer.eos(), " ")));
    const std::string& problem = file.chat.problem();
    out.add("chat template", !problem.empty() ? problem : file.chat.is_raw() ? "none" : "yes");
    append_notes(out.odd, file.chat.notes(false));
    append_notes(out.odd, file.notes);
}

/// Adds what could draft for a target, and how.
void add_drafters(const std::string& path, Inspection& out) {
    const std::string run = fmt::format("draftscope run --model {} --drafter ", path);
    std::error_code ignored;
    if (std::filesystem::equivalent(path, find_demo_model(), ignored))
        out.next.push_back(run + "eagle3 (or eagle2, medusa, hydra: they come with this target)");
    const auto all = read_published_drafters();
    if (!all.ok()) out.odd.push_back(all.error().message);
    const auto found = all.ok() ? drafters_for(path, *all) : std::vector<PublishedDrafter>();
    for (std::size_t i = 0; i < std::min(found.size(), max_published); ++i)
        out.next.push_back(
            fmt::format("hf download {0}, then {1}{2}:{0}", found[i].at, run, found[i].drafter));
    if (found.size() > max_published)
        out.next.push_back(fmt::format("draftscope drafters --for {} (lists all {})", path, found.size()));
    out.next.push_back(run + "suffix (needs no checkpoint)");
}

Status compare_models(const ModelFile& draft, const ModelFile& target, Inspection& out) {
    compare(out, "rows of the LM head", draft.config.vocab, target.config.vocab);
    const Status fits =
        check_vocabularies({draft.weights->path(), draft.tokenizer.get(), draft.config.vocab},
                           {target.weights->path(), target.tokenizer.get(), target.config.vocab}, out.odd);
    compare(out, "tokenizer", fits.ok(), true, "another: its ids are other tokens");
    const auto text = [](const ModelFile& file) {
        const auto rendered = file.chat.render({{"user", "Hello"}});
        return rendered.ok() ? *rendered : rendered.error().message;
    };
    compare(out, "chat template", text(draft) == text(target), true,
            "another; the draft model gets the target's");
    return fits;
}

}  // namespace

void inspect_model(const Contents& contents, const ModelFile* target, Inspection& out) {
    const auto names = contents.config.value("architectures", nlohmann::json());
    out.kind = fmt::format("language model {}, {}", printable_json(names),
                           contents.gguf ? "GGUF" : "folder of the hub");
    const bool has_head = contents.part("lm_head.weight", "output.weight") != nullptr;
    const bool tied = !has_head && contents.part("embed_tokens.weight", "token_embd.weight") != nullptr;
    add_sizes(contents, tied, out);
    out.add("LM head", tied ? "tied: the embeddings" : has_head ? "its own" : "unknown");
    if (tied && contents.config.value("tie_word_embeddings", nlohmann::json()) == false)
        add_note(out.odd, "tie_word_embeddings is false, but lm_head.weight is missing");
    for (const char* field : {"num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_layers"})
        if (contents.count(field) > 0) out.add("MTP layers", std::to_string(contents.count(field)));
    if (const int layers = contents.layers(); target == nullptr && layers > 3)
        out.add("feature layers",
                fmt::format("EAGLE-3's default: the inputs of layers 2, {}, {}", layers / 2, layers - 3));
    const Result<ModelFile> file = open_model_file(contents.path);
    if (file.ok()) add_tokenizer(*file, out);
    Result<std::string> use = (target == nullptr ? "--model " : "--drafter draft-model:") + contents.path;
    if (!file.ok()) use = file.error();
    if (file.ok() && target != nullptr)
        if (const Status fits = compare_models(*file, *target, out); !fits.ok()) use = fits.error();
    add_stacks(contents.gguf ? "model/gguf" : "model/folder", use, out);
    if (target == nullptr && out.unread.empty()) add_drafters(contents.path, out);
}

}  // namespace draftscope

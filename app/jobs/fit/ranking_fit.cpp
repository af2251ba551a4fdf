#include "app/jobs/fit/ranking_fit.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "app/jobs/resolve/resolve.h"
#include "capture/run_setting.h"
#include "engine/formats/model_file.h"
#include "engine/formats/safetensors_writer.h"

namespace draftscope {

namespace fs = std::filesystem;

TextCounts count_recordings(const fit::Recordings& recordings, int vocab, fit::HoldOut hold_out) {
    std::vector<int> generated;
    for (const auto& recording : recordings)
        for (const RecordedPrompt& prompt : recording->prompts())
            generated.push_back(prompt.generated_tokens);
    const std::vector<int> held = fit::TextSplit(generated, hold_out).texts(true);
    TextCounts counts(vocab);
    int text = 0;
    for (const auto& recording : recordings) {
        for (const RecordedPrompt& prompt : recording->prompts()) {
            const std::vector<TokenId> tokens = recording->tokens(prompt);
            const auto answer = std::span(tokens).subspan(prompt.prompt_tokens);
            counts.all.add(answer);
            const bool held_out = std::binary_search(held.begin(), held.end(), text++);
            (held_out ? counts.held_out : counts.learnt).add(answer);
        }
    }
    return counts;
}

Status write_ranking(const FitConfig& config, const fit::Ranking& ranking, const std::string& target,
                     const std::string& tokenizer, const std::string& source) {
    const std::vector<std::int64_t> shape{static_cast<std::int64_t>(ranking.ids.size())};
    const std::vector<TensorToSave> tensors{
        {"ids", "I32", shape, std::as_bytes(std::span(ranking.ids))},
        {"counts", "I32", shape, std::as_bytes(std::span(ranking.counts))}};
    return save_safetensors(config.out, tensors,
                            {{"format", "draftscope-ranking"},
                             {"target", target},
                             {"tokenizer_fingerprint", tokenizer},
                             {"source", source},
                             {"tokens", std::to_string(ranking.tokens)}});
}

void describe_ranking(const fit::Ranking& ranking, const TextCounts& counts, FitReport& report) {
    const fit::Ranking learnt = counts.learnt.ranking(), held_out = counts.held_out.ranking();
    report.notes["tokens"] = static_cast<double>(ranking.tokens);
    report.notes["tokens_held_out"] = static_cast<double>(held_out.tokens);
    report.notes["tokens_seen"] = static_cast<double>(
        std::count_if(ranking.counts.begin(), ranking.counts.end(), [](int n) { return n > 0; }));
    for (const int size : {2048, 4096, 8192, 16384, 32768}) {
        if (size < static_cast<int>(ranking.ids.size()) && held_out.tokens > 0)
            report.held_out[fmt::format("coverage_{}", size)] = fit::ranking_coverage(learnt, size, held_out);
    }
}

Status fit_text_ranking(const FitConfig& config, const JobHooks& hooks, FitReport& report) {
    RunConfig run;
    run.model = config.model;
    run.drafter = plain_drafter;
    run.prompt = "fit";
    DS_ASSIGN(const ResolvedRun resolved, resolve_run(run));
    DS_ASSIGN(const ModelFile file, open_model_file(resolved.config.model));
    if (file.tokenizer == nullptr) return bad_input("--model {}: has no tokenizer", resolved.config.model);
    TextCounts counts(file.tokenizer->size());
    const int every = config.options.collect.hold_out.every;
    int lines = 0;
    std::ifstream text(config.text, std::ios::binary);
    const auto size = static_cast<double>(fs::file_size(config.text));
    double done = 0;
    for (std::string line; std::getline(text, line);) {
        DS_TRY(hooks.check());
        const std::vector<TokenId> tokens = file.tokenizer->encode(line + "\n", false);
        counts.all.add(tokens);
        (++lines % every == 0 ? counts.held_out : counts.learnt).add(tokens);
        done += static_cast<double>(line.size()) + 1;
        hooks.report(done / size, "counting tokens");
    }
    const fit::Ranking ranking = counts.all.ranking();
    if (ranking.tokens == 0) return bad_input("--text {}: contains no text", config.text);
    describe_ranking(ranking, counts, report);
    report.target = file.config.name;
    return write_ranking(config, ranking, file.config.name,
                         fmt::format("{:016x}", file.tokenizer->fingerprint()),
                         "raw text " + fs::path(config.text).filename().string());
}

}  // namespace draftscope

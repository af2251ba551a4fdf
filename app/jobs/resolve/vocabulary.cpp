#include "app/jobs/resolve/vocabulary.h"

#include <filesystem>

#include "capture/token_text.h"
#include "engine/formats/model_file.h"
#include "engine/formats/tensor_file.h"
#include "storage/import/import_rounds.h"

namespace draftscope {
namespace {

struct Ranking {
    std::vector<std::int64_t> ids;
    std::vector<std::int64_t> counts;  ///< parallel to ids; may be empty
    std::string source;
};

Result<Ranking> read_ranking(const std::string& path, const Tokenizer& tokenizer) {
    DS_ASSIGN(const auto file, open_tensor_file(path));
    const std::string made_for = file->metadata("tokenizer_fingerprint");
    const std::string ours = fmt::format("{:016x}", tokenizer.fingerprint());
    if (!made_for.empty() && made_for != ours) {
        return bad_input(
            "ranking {}: made for tokenizer {}, the target has {}; make one with tools/make_ranking.py", path,
            made_for, ours);
    }
    Ranking ranking;
    DS_ASSIGN(ranking.ids, file->read_integers("ids"));
    if (file->find("counts") != nullptr) {
        DS_ASSIGN(ranking.counts, file->read_integers("counts"));
    }
    ranking.source = file->metadata("source");
    if (ranking.source.empty()) ranking.source = std::filesystem::path(path).filename().string();
    return ranking;
}

}  // namespace

Result<Vocabulary> make_vocabulary(const Tokenizer& tokenizer, const std::string& ranking_path, RowId id) {
    auto vocab = std::make_shared<Vocab>();
    vocab->id = id;
    vocab->rows.resize(tokenizer.size());
    for (TokenId token = 0; token < tokenizer.size(); ++token) {
        VocabRow& row = vocab->rows[token];
        row.vocab_id = id;
        row.token_id = token;
        row.bytes = tokenizer.token_bytes(token);
        row.text = format_token(row.bytes);
    }
    Vocabulary made;
    if (!ranking_path.empty()) {
        DS_ASSIGN(const Ranking ranking, read_ranking(ranking_path, tokenizer));
        made.ranks.resize(vocab->rows.size());
        made.ranking = ranking.source;
        for (std::size_t rank = 0; rank < ranking.ids.size(); ++rank) {
            const std::int64_t token = ranking.ids[rank];
            if (token < 0 || token >= tokenizer.size()) continue;
            VocabRow& row = vocab->rows[token];
            row.rank = static_cast<int>(rank);
            if (rank < ranking.counts.size()) row.count = ranking.counts[rank];
            made.ranks[token] = static_cast<int>(rank);
        }
    }
    made.vocab = std::move(vocab);
    return made;
}

Status load_vocabulary(const std::string& model, const std::string& ranking, RowId id,
                       RoundsOptions& options) {
    if (model.empty())
        return ranking.empty() ? Status()
                               : bad_input("--ranking {}: needs --model, whose tokens it ranks", ranking);
    DS_ASSIGN(const ModelFile file, open_model_file(model));
    if (file.tokenizer == nullptr) return bad_input("--model {}: has no tokenizer", model);
    DS_ASSIGN(const Vocabulary made, make_vocabulary(*file.tokenizer, ranking, id));
    options.vocab = made.vocab;
    options.ranking = made.ranking;
    return {};
}

}  // namespace draftscope

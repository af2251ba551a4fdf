#include "engine/draft/vocabulary_pair.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "base/mapped_file.h"

namespace draftscope {
namespace {

constexpr int max_named = 3;  ///< differing ids that an error names

/// Returns the text of an id; "" for padding.
std::string_view text_of(const ModelVocabulary& model, TokenId id) {
    return id < model.tokenizer->size() ? std::string_view(model.tokenizer->token_bytes(id))
                                        : std::string_view();
}

/// Returns "bos 1, eos 2 3, pre-tokenizer qwen2" of a model.
std::string describe(const ModelVocabulary& model) {
    const Tokenizer& tokenizer = *model.tokenizer;
    return fmt::format(
        "{} tokens, bos {}, eos {}, pre-tokenizer {}", tokenizer.size(),
        tokenizer.bos() == no_token ? std::string("none") : std::to_string(tokenizer.bos()),
        tokenizer.eos().empty() ? std::string("none") : fmt::format("{}", fmt::join(tokenizer.eos(), " ")),
        printable(tokenizer.pretokenizer()));
}

/// Returns the error of two vocabularies that differ in `what`.
Error refuse(const ModelVocabulary& draft, const ModelVocabulary& target, const std::string& what) {
    return bad_input(
        "draft-model:{}: its vocabulary differs from that of the target {}: {}; the draft model has {}; the "
        "target has {}; use a draft model with the target's tokenizer",
        draft.path, target.path, what, describe(draft), describe(target));
}

Status check_special_tokens(const ModelVocabulary& draft, const ModelVocabulary& target, Notes& notes) {
    const Tokenizer &ours = *draft.tokenizer, &theirs = *target.tokenizer;
    if (ours.add_bos() && theirs.add_bos() && ours.bos() != theirs.bos())
        return refuse(draft, target, fmt::format("texts begin with id {}, not {}", ours.bos(), theirs.bos()));
    std::vector<TokenId> a = ours.eos(), b = theirs.eos(), both;
    std::ranges::sort(a);
    std::ranges::sort(b);
    std::ranges::set_intersection(a, b, std::back_inserter(both));
    if (both.empty() && !a.empty() && !b.empty())
        return refuse(draft, target, "no token ends the texts of both");
    if (a != b)
        add_note(notes, "draft-model:{}: eos is {}, but {} in {}; the target's ends a text", draft.path,
                 fmt::join(a, " "), fmt::join(b, " "), target.path);
    return {};
}

}  // namespace

Status check_vocabularies(const ModelVocabulary& draft, const ModelVocabulary& target, Notes& notes) {
    if (draft.tokenizer == nullptr || target.tokenizer == nullptr) return {};
    const int common = std::min(draft.rows, target.rows);
    std::string differing;
    int count = 0;
    // Of ids that one model lacks, any text counts as a difference.
    for (TokenId id = 0; id < std::max(draft.tokenizer->size(), target.tokenizer->size()); ++id) {
        const std::string_view ours = text_of(draft, id), theirs = text_of(target, id);
        if (ours == theirs || (id >= common && (ours.empty() || theirs.empty()))) continue;
        if (++count > max_named) continue;
        differing += fmt::format("{}id {} is '{}', not '{}'", differing.empty() ? "" : ", ", id,
                                 printable(ours), printable(theirs));
    }
    if (count > 0)
        return refuse(draft, target,
                      fmt::format("{}{}", differing,
                                  count > max_named ? fmt::format(" and {} more", count - max_named) : ""));
    if (draft.rows != target.rows)
        add_note(notes,
                 "draft-model:{}: its LM head has {} rows, that of {} has {}; only ids of both are drafted",
                 draft.path, draft.rows, target.path, target.rows);
    return check_special_tokens(draft, target, notes);
}

}  // namespace draftscope

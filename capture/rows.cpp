#include "capture/rows.h"

#include "base/enum_text.h"

namespace draftscope {
namespace {

// These texts are stored in capture files.
constexpr std::string_view run_end_texts[] = {"", "ok", "cancelled", "error", "recovered"};
constexpr std::string_view finish_texts[] = {"", "eos", "length", "context", "cancelled"};
constexpr std::string_view excluded_texts[] = {"", "warmup", "paused", "shadow", "untimed"};
constexpr std::string_view source_texts[] = {"prefill", "draft", "bonus"};
constexpr std::string_view mode_texts[] = {"drive", "selfpaced", "aligned", "calibration"};

}  // namespace

std::string_view to_text(RunEnd end) {
    return enum_text(run_end_texts, end);
}
std::string_view to_text(Finish finish) {
    return enum_text(finish_texts, finish);
}
std::string_view to_text(Excluded excluded) {
    return enum_text(excluded_texts, excluded);
}
std::string_view to_text(TokenSource source) {
    return enum_text(source_texts, source);
}
std::string_view to_text(HeadMode mode) {
    return enum_text(mode_texts, mode);
}

std::optional<RunEnd> run_end_from(std::string_view text) {
    return enum_from<RunEnd>(run_end_texts, text);
}
std::optional<Finish> finish_from(std::string_view text) {
    return enum_from<Finish>(finish_texts, text);
}
std::optional<Excluded> excluded_from(std::string_view text) {
    return enum_from<Excluded>(excluded_texts, text);
}
std::optional<TokenSource> token_source_from(std::string_view text) {
    return enum_from<TokenSource>(source_texts, text);
}
std::optional<HeadMode> head_mode_from(std::string_view text) {
    return enum_from<HeadMode>(mode_texts, text);
}

}  // namespace draftscope

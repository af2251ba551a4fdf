#include "capture/rows.h"

#include <array>
#include <cstddef>

namespace draftscope {

namespace {

// These texts are stored in capture files. Their order is that of the enumerators.
constexpr std::array<std::string_view, 5> run_end_texts = {"", "ok", "cancelled", "error", "recovered"};
constexpr std::array<std::string_view, 5> finish_texts = {"", "eos", "length", "context", "cancelled"};
constexpr std::array<std::string_view, 4> excluded_texts = {"", "warmup", "paused", "shadow"};
constexpr std::array<std::string_view, 3> source_texts = {"prefill", "draft", "bonus"};
constexpr std::array<std::string_view, 4> mode_texts = {"drive", "selfpaced", "aligned", "calibration"};

template <typename Enum, std::size_t N>
std::string_view enum_text(Enum value, const std::array<std::string_view, N>& texts) {
    const auto index = static_cast<std::size_t>(value);
    return index < N ? texts[index] : std::string_view{};
}

template <typename Enum, std::size_t N>
std::optional<Enum> parse_enum(std::string_view text, const std::array<std::string_view, N>& texts) {
    for (std::size_t i = 0; i < N; ++i)
        if (texts[i] == text) return static_cast<Enum>(i);
    return std::nullopt;
}

}  // namespace

std::string_view to_text(RunEnd end) {
    return enum_text(end, run_end_texts);
}
std::string_view to_text(Finish finish) {
    return enum_text(finish, finish_texts);
}
std::string_view to_text(Excluded excluded) {
    return enum_text(excluded, excluded_texts);
}
std::string_view to_text(TokenSource source) {
    return enum_text(source, source_texts);
}
std::string_view to_text(HeadMode mode) {
    return enum_text(mode, mode_texts);
}

std::optional<RunEnd> run_end_from(std::string_view text) {
    return parse_enum<RunEnd>(text, run_end_texts);
}
std::optional<Finish> finish_from(std::string_view text) {
    return parse_enum<Finish>(text, finish_texts);
}
std::optional<Excluded> excluded_from(std::string_view text) {
    return parse_enum<Excluded>(text, excluded_texts);
}
std::optional<TokenSource> token_source_from(std::string_view text) {
    return parse_enum<TokenSource>(text, source_texts);
}
std::optional<HeadMode> head_mode_from(std::string_view text) {
    return parse_enum<HeadMode>(text, mode_texts);
}

}  // namespace draftscope

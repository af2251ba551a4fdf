#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "app/gui/models/folder_list.h"
#include "app/gui/models/fonts.h"
#include "app/gui/models/palette.h"
#include "app/gui/models/rounds.h"
#include "app/gui/models/selection.h"
#include "app/gui/models/session.h"
#include "app/gui/models/text.h"
#include "base/phase_names.h"
#include "base/utf8.h"
#include "capture/queries.h"
#include "stats/speedup.h"
#include "stats/sweep_table.h"
#include "tests/gui/synthetic.h"
#include "tests/support/capture_builder.h"
#include "tests/support/results.h"
#include "tests/support/scratch_folder.h"

namespace draftscope::test {
namespace {

/// Returns a capture with two runs of 10 and 6 rounds.
Snapshot two_runs() {
    Capture capture;
    for (RowId id : {1, 2}) {
        SyntheticOptions options{
            .seed = static_cast<std::uint64_t>(id), .run_id = id, .drafter = id == 2 ? "none" : "eagle2"};
        SyntheticRun run(options);
        run.begin(capture);
        for (int i = 0; i < (id == 1 ? 10 : 6); ++i) run.advance(capture);
        run.end(capture, RunEnd::ok);
    }
    return capture.snapshot(1);
}

TEST(Palette, EveryDataColourIsReadableOnItsGround) {
    for (ThemeId theme : {ThemeId::dark, ThemeId::light}) {
        const Palette& p = palette(theme);
        EXPECT_GE(contrast(p.text, p.panel), 7.0);
        EXPECT_GE(contrast(p.text_dim, p.panel), 4.5);
        EXPECT_GE(contrast(p.text_on_data, p.accent), 4.5);
        EXPECT_GE(contrast(p.text, p.slider), 4.5) << "values are drawn over the knob";
        EXPECT_GE(contrast(p.slider, p.raised), 1.6);
        for (std::uint32_t colour : {p.accent, p.good, p.bad, p.warn, p.target, p.prefill})
            EXPECT_GE(contrast(colour, p.panel), 3.0) << std::hex << colour;
        for (const PhaseRow& phase : phase_rows)
            EXPECT_GE(contrast(phase_colour(phase.id, theme), p.panel), 3.0) << phase.name;
    }
}

TEST(Palette, ContrastMatchesWcag) {
    EXPECT_NEAR(contrast(0x000000, 0xFFFFFF), 21.0, 1e-9);
    EXPECT_NEAR(contrast(0x777777, 0xFFFFFF), 4.48, 0.01);
    EXPECT_DOUBLE_EQ(contrast(0x123456, 0x123456), 1.0);
}

TEST(Selection, RoundsOfARunAreARange) {
    const Snapshot snapshot = two_runs();
    EXPECT_EQ(rounds_of_run(snapshot, 1).first, 0u);
    EXPECT_EQ(rounds_of_run(snapshot, 1).end, 10u);
    EXPECT_EQ(rounds_of_run(snapshot, 2).size(), 6u);
    EXPECT_EQ(rounds_of_run(snapshot, 3).size(), 0u);
}

TEST(Selection, NewRunTakesTheSelectionAndFollows) {
    const Snapshot snapshot = two_runs();
    UiState ui;
    sync_selection(snapshot, ui);
    EXPECT_EQ(ui.run_id, 2);
    EXPECT_EQ(ui.round, 15u);
    select_run(snapshot, ui, 1);
    EXPECT_EQ(ui.round, 9u);
    EXPECT_FALSE(ui.follow) << "following ends for an older run";
    sync_selection(snapshot, ui);
    EXPECT_EQ(ui.run_id, 1) << "the selection stays until a new run appears";
}

TEST(Selection, StepsStayInsideTheRun) {
    const Snapshot snapshot = two_runs();
    UiState ui;
    sync_selection(snapshot, ui);
    step_selection(snapshot, ui, -100);
    EXPECT_EQ(ui.round, 10u);
    EXPECT_FALSE(ui.follow);
    step_selection(snapshot, ui, 100);
    EXPECT_EQ(ui.round, 15u);
    EXPECT_FALSE(ui.follow) << "reaching the newest round does not turn following on";
    set_follow(snapshot, ui, true);
    EXPECT_EQ(ui.round, 15u);
}

TEST(Selection, PausedBatchShowsTheSequenceOfTheSelectedRound) {
    testing::CaptureBuilder capture(nullptr, {.prompt = 3});
    RunRow run;
    run.batch = 2;
    capture.run(run);
    StepRecord step;
    for (int i = 0; i < 2; ++i) {
        step.rounds.emplace_back();
        step.rounds.back().round.prompt_id = capture.prompt();
    }
    capture.step(step);
    UiState ui;
    ui.run_id = 1;
    ui.follow = false;
    ui.round = 1;
    EXPECT_EQ(watched_prompt(capture.snapshot(), ui), 5);
    ui.round = 0;
    EXPECT_EQ(watched_prompt(capture.snapshot(), ui), 4);
    ui.follow = true;
    EXPECT_EQ(watched_prompt(capture.snapshot(), ui), 0);
    ui.follow = false;
    capture.add(RunEnded{1, RunEnd::ok, 9, {}});
    EXPECT_EQ(watched_prompt(capture.snapshot(), ui), 0);
}

TEST(Selection, NeverDangles) {
    UiState ui;
    sync_selection(two_runs(), ui);
    Snapshot empty;
    sync_selection(empty, ui);
    EXPECT_FALSE(ui.round.has_value());
    EXPECT_EQ(ui.run_id, 0);
    step_selection(empty, ui, 1);
    EXPECT_FALSE(ui.round.has_value());
}

TEST(Selection, SpeedupMatchesTheCommandLine) {
    const Snapshot snapshot = two_runs();
    const HeaderNumbers numbers = header_numbers(snapshot, 1);
    const auto speed = compute_speedup(snapshot, 1);
    ASSERT_TRUE(speed);
    EXPECT_EQ(numbers.speedup, fmt::format("{:.2f}", speed->ratio.value));
    EXPECT_NE(numbers.speedup_why.find("the same"), std::string::npos) << numbers.speedup_why;
    EXPECT_NE(numbers.speedup_why.find("baseline run 2)"), std::string::npos) << numbers.speedup_why;
    EXPECT_NEAR(std::stod(numbers.tau), run_totals(snapshot, 1).tau, 0.005);
    EXPECT_EQ(header_numbers(snapshot, 2).speedup, "-");
    EXPECT_EQ(header_numbers(*synthetic_snapshot(5), 1).speedup, "-");
    EXPECT_EQ(header_numbers(Snapshot(), 0).tau, "-");
}

TEST(Selection, SpeedsNameTheThreadsUnlessTheyAreAllCores) {
    const auto unit = [](const char* machine) {
        testing::CaptureBuilder builder;
        RunRow row;
        row.threads = 2;
        row.machine_json = machine;
        const RowId run = builder.run(row);
        return header_numbers(builder.snapshot(), run).speed_unit;
    };
    EXPECT_EQ(unit(R"({"cores": 2})"), "tok/s");
    EXPECT_EQ(unit(R"({"cores": 8})"), "tok/s, 2 threads");
    EXPECT_EQ(unit("[]"), "tok/s");
    EXPECT_EQ(unit("?"), "tok/s");
}

TEST(Selection, OldVersionBaselineGivesNoSpeedup) {
    Capture capture;
    SyntheticRun run;
    run.begin(capture);
    for (int i = 0; i < 5; ++i) run.advance(capture);
    run.end(capture, RunEnd::ok);
    capture.apply(CounterRow{1, 0, std::string(baseline_counter), 10.0});
    const HeaderNumbers numbers = header_numbers(capture.snapshot(1), 1);
    EXPECT_EQ(numbers.speedup, "-");
    EXPECT_NE(numbers.speedup_why.find("10.0 tok/s"), std::string::npos) << numbers.speedup_why;
}

TEST(Selection, ShortNames) {
    EXPECT_EQ(short_name("/a/b/model.gguf"), "model.gguf");
    EXPECT_EQ(shorten_paths("eagle2:/m/e2 x slimspec:rank=8,file=./f/a.st @ chain=3"),
              "eagle2:e2 x slimspec:rank=8,file=a.st @ chain=3");
    EXPECT_EQ(shorten_paths("eagle3 x full @ depth=2,topk=2,nodes=4"),
              "eagle3 x full @ depth=2,topk=2,nodes=4");
    EXPECT_EQ(short_name("eagle2"), "eagle2");
    EXPECT_EQ(short_name("/x/0123456789", 5), "0123…");
}

TEST(Rounds, IncrementalUpdateEqualsRebuild) {
    Capture capture;
    SyntheticRun run;
    run.begin(capture);
    RoundsModel grown;
    for (int i = 0; i < 20 && run.advance(capture); ++i) update_rounds(grown, capture.snapshot(1), 1);
    RoundsModel rebuilt;
    update_rounds(rebuilt, capture.snapshot(1), 1);
    ASSERT_EQ(grown.cells.size(), rebuilt.cells.size());
    for (std::size_t i = 0; i < rebuilt.cells.size(); ++i) {
        EXPECT_EQ(grown.cells[i].accepted, rebuilt.cells[i].accepted);
        EXPECT_EQ(grown.cells[i].dominant_phase, rebuilt.cells[i].dominant_phase);
    }
    EXPECT_EQ(grown.tallest, rebuilt.tallest);
    EXPECT_EQ(rebuilt.find_cell(7), 7u);
    EXPECT_EQ(rebuilt.find_cell(700), rebuilt.cells.size());
    update_rounds(grown, two_runs(), 2);
    EXPECT_EQ(grown.cells.size(), 6u) << "another run resets the model";
    EXPECT_EQ(grown.cells.front().index, 10u);
    // Another file whose run has the same id and more rounds.
    update_rounds(grown, *synthetic_snapshot(10), 1);
    auto other = *synthetic_snapshot(20, {.seed = 3});
    other.source = "other.dscope";
    update_rounds(grown, other, 1);
    update_rounds(rebuilt = {}, other, 1);
    ASSERT_EQ(grown.cells.size(), rebuilt.cells.size());
    for (std::size_t i = 0; i < rebuilt.cells.size(); ++i)
        EXPECT_EQ(grown.cells[i].accepted, rebuilt.cells[i].accepted) << i;
}

TEST(Rounds, WithoutTimesNoPhaseIsTheLongest) {
    testing::CaptureBuilder replayed;
    replayed.step(0, 0, {}, testing::round_of(), Excluded::untimed);
    RoundsModel model;
    update_rounds(model, replayed.snapshot(), 1);
    ASSERT_EQ(model.cells.size(), 1u);
    EXPECT_EQ(model.cells[0].dominant_phase, 0) << "not the remainder, which is drawn hatched";
}

TEST(Rounds, DominantPhaseIsTheLongestAndSharesAreOfTheStep) {
    RoundsModel model;
    update_rounds(model, *synthetic_snapshot(10), 1);
    for (const RoundCell& cell : model.cells) {
        EXPECT_EQ(phase_rows[cell.dominant_phase].name, "verify");
        EXPECT_GT(cell.dominant_share, 0.5);
        EXPECT_LT(cell.dominant_share, 1.0);
    }
    EXPECT_NE(describe_round(model.cells[0]).find("warmup"), std::string::npos);
    EXPECT_NE(describe_round(model.cells[5]).find("verify"), std::string::npos);
    RoundCell of_pair = model.cells[5];
    EXPECT_EQ(describe_round(of_pair).find("drafted by"), std::string::npos);
    of_pair.drafter = "suffix";
    EXPECT_NE(describe_round(of_pair).find("drafted by suffix"), std::string::npos);
}

TEST(Rounds, AcceptanceCountsReachedDepths) {
    const auto snapshot = synthetic_snapshot(40);
    RoundsModel rounds;
    update_rounds(rounds, *snapshot, 1);
    const AcceptanceModel model = build_acceptance(rounds, *snapshot, std::nullopt);
    EXPECT_EQ(model.rounds, 40) << "warm-up and calibration rounds count";
    std::int64_t sum = 0;
    for (std::int64_t count : model.histogram) sum += count;
    EXPECT_EQ(sum, model.rounds);
    for (std::size_t depth = 1; depth < model.depths.size(); ++depth)
        EXPECT_EQ(model.depths[depth].reached, model.depths[depth - 1].accepted);
    EXPECT_EQ(model.depths[0].reached, model.rounds);
    EXPECT_EQ(model.depths[0].accepted, model.rounds - model.histogram[0]);
}

TEST(Rounds, RangeLimitsTheCounts) {
    const auto snapshot = synthetic_snapshot(20);
    RoundsModel rounds;
    update_rounds(rounds, *snapshot, 1);
    const RoundRow& fifth = snapshot->rounds[5].row;
    const AcceptanceModel model =
        build_acceptance(rounds, *snapshot, TimeRange{fifth.start_ns + 1, fifth.end_ns - 1});
    EXPECT_EQ(model.rounds, 1);
    EXPECT_EQ(model.histogram[fifth.accepted], 1);
}

TEST(Text, PiecesJoinToTheOutputAndKnowTheirRound) {
    const auto snapshot = synthetic_snapshot(1000);
    const TextModel model = build_text(*snapshot, 1);
    std::string text;
    for (const TextPiece& piece : model.pieces)
        if (!piece.is_prompt()) text += piece.text;
    EXPECT_TRUE(text.starts_with("Sunlight looks white"));
    EXPECT_TRUE(text.ends_with("空は青い 🌍!")) << "characters split over tokens are joined: " << text;
    EXPECT_TRUE(model.pieces[0].is_prompt());
    EXPECT_EQ(model.pieces[1].source, TokenSource::prefill);
    EXPECT_FALSE(model.pieces[1].round_index.has_value());
    for (std::size_t i = 2; i < model.pieces.size(); ++i) {
        ASSERT_TRUE(model.pieces[i].round_index.has_value());
        EXPECT_EQ(model.pieces[i].position, static_cast<int>(i) - 1);
    }
    EXPECT_EQ(model.pieces.back().round_index, snapshot->rounds.size() - 1);
    for (const TokenSource source : {TokenSource::draft, TokenSource::bonus})
        EXPECT_NE(std::ranges::find(model.pieces, source, &TextPiece::source), model.pieces.end());
}

TEST(Text, ExplainsAnEmptyText) {
    EXPECT_FALSE(build_text(Snapshot(), 0).empty_text.empty());
}

TEST(Text, PromptOfTheSelectedRoundUnlessFollowing) {
    const Snapshot snapshot = two_runs();
    UiState ui;
    sync_selection(snapshot, ui);
    EXPECT_EQ(prompt_to_show(snapshot, ui), 2);
    select_run(snapshot, ui, 1);
    EXPECT_EQ(prompt_to_show(snapshot, ui), 1);
}

/// Returns the pieces with the text of each token.
std::vector<TextPiece> joined(const std::vector<std::string>& bytes) {
    std::vector<TextPiece> pieces(bytes.size());
    join_pieces(bytes, pieces);
    return pieces;
}

TEST(TextJoin, SplitCharacterBelongsToAllItsTokens) {
    const auto pieces = joined({"a\xF0\x9F", "\x8C", "\x8D!", "b"});
    EXPECT_EQ(pieces[0].text, "a");
    EXPECT_EQ(pieces[1].text, "");
    EXPECT_EQ(pieces[2].text, "\xF0\x9F\x8C\x8D!");
    EXPECT_EQ(pieces[2].shared_pieces, 2u);
    EXPECT_EQ(pieces[2].shared_bytes, 4u);
    EXPECT_EQ(pieces[1].bytes, "<8C>");
    EXPECT_EQ(pieces[3].shared_pieces, 0u);
    EXPECT_EQ(pieces[3].bytes, "");
    TextPiece part = pieces[1];
    part.source = TokenSource::draft;
    part.token_id = 7;
    EXPECT_NE(describe_piece(part).find("bytes <8C>: part of a character"), std::string::npos);
}

TEST(TextJoin, InvalidUtf8IsShownAsHexBytes) {
    EXPECT_EQ(joined({"\x80x"})[0].text, "<80>x");
    EXPECT_EQ(joined({"\xC3(\xFF"})[0].text, "<C3>(<FF>");
    const auto pieces = joined({"\xE2", "\x82", "z"});
    EXPECT_EQ(pieces[0].text, "<E2>");
    EXPECT_EQ(pieces[1].text, "<82>");
    EXPECT_EQ(pieces[2].text, "z");
    EXPECT_EQ(joined({"", "\xF0\x9F"})[1].text, "<F0 9F>") << "the character is still incomplete";
}

TEST(TextJoin, MissingGlyphsBecomeCodePointsAndStayShared) {
    TextModel model;
    model.pieces = joined({"\xF0\x9F", "\x99\x82 \xC3\xA9"});
    replace_missing_glyphs(model, [](char32_t code) { return code < 0x100; });
    EXPECT_EQ(model.pieces[1].text, "<U+1F642> \xC3\xA9");
    EXPECT_EQ(model.pieces[1].shared_bytes, 9u);
}

float ten_per_byte(std::string_view text) {
    return 10.0f * static_cast<float>(text.size());
}

std::vector<TextPiece> make_pieces(std::initializer_list<const char*> texts) {
    std::vector<TextPiece> pieces;
    for (const char* text : texts) pieces.emplace_back().text = text;
    return pieces;
}

/// Returns the lines as text.
std::vector<std::string> lay_out_lines(std::initializer_list<const char*> texts, float width) {
    const auto pieces = make_pieces(texts);
    std::vector<std::string> lines;
    for (const TextRun& run : lay_out_text(pieces, width, ten_per_byte)) {
        lines.resize(static_cast<std::size_t>(run.line) + 1);
        std::string& line = lines.back();
        EXPECT_FLOAT_EQ(run.x, ten_per_byte(line));
        line += pieces[run.piece].text.substr(run.first, run.count);
        EXPECT_FLOAT_EQ(run.x + run.width, ten_per_byte(line));
    }
    return lines;
}
using Lines = std::vector<std::string>;

TEST(TextLayout, BreaksBetweenWordsNotBetweenPieces) {
    EXPECT_EQ(lay_out_lines({"one", " two", " thr", "ee", " four"}, 100), (Lines{"one two", "three four"}));
    EXPECT_EQ(lay_out_lines({"the", " end", "."}, 70), (Lines{"the", "end."}))
        << "no punctuation alone at the start of a line";
}

TEST(TextLayout, LongPieceBreaksBetweenItsWords) {
    EXPECT_EQ(lay_out_lines({"one two three four", " five"}, 90), (Lines{"one two", "three", "four five"}));
}

TEST(TextLayout, LineEndsBreakAndAreMarked) {
    const auto runs = lay_out_text(make_pieces({"a\n\nb", "\n"}), 100, ten_per_byte);
    ASSERT_EQ(runs.size(), 4u);
    EXPECT_TRUE(runs[0].line_end);
    EXPECT_EQ(runs[1].count, 0u);
    EXPECT_EQ(runs[1].line, 1);
    EXPECT_TRUE(runs[1].line_end);
    EXPECT_EQ(runs[2].line, 2);
    EXPECT_FALSE(runs[2].line_end);
    EXPECT_TRUE(runs[3].line_end);
    EXPECT_EQ(runs[3].line, 2);
}

TEST(TextLayout, IndentationStays) {
    EXPECT_EQ(lay_out_lines({"f:\n", "   ", " return", " x"}, 200), (Lines{"f:", "    return x"}));
}

TEST(TextLayout, WordWiderThanALineBreaksBetweenCharacters) {
    EXPECT_EQ(lay_out_lines({"a", " incomprehensible", " b"}, 60),
              (Lines{"a", "incomp", "rehens", "ible b"}));
    EXPECT_EQ(lay_out_lines({"incom", "prehen", "sible"}, 60).size(), 3u) << "breaks only between pieces";
    EXPECT_EQ(lay_out_lines({"x abcd", "efgh"}, 60), (Lines{"x abcd", "efgh"}))
        << "a word wider than a line breaks between its pieces";
    EXPECT_EQ(lay_out_lines({"\u6d4f\u89c8\u6587\u672b"}, 65), (Lines{"\u6d4f\u89c8", "\u6587\u672b"}));
    EXPECT_EQ(lay_out_lines({"ae\u0301i"}, 30), (Lines{"a", "e\u0301", "i"})) << "marks stay";
    EXPECT_EQ(lay_out_lines({"\u6d4f\n\u89c8"}, 10).size(), 2u) << "one character a line at least";
}

TEST(Utf8, CharactersAreDrawnWithTheirMarks) {
    const auto length = [](std::string_view text) { return drawn_character_length(text); };
    EXPECT_EQ(length("ab"), 1u);
    EXPECT_EQ(length("e\u0301\u0302x"), 5u);
    EXPECT_EQ(length("\u0915\u093f\u0937"), 6u) << "a vowel sign";
    EXPECT_EQ(length("\u0e01\u0e33"), 3u);
    EXPECT_EQ(length("\U0001f468\u200d\U0001f469x"), 11u) << "joined";
    EXPECT_EQ(length("\U0001f44d\U0001f3fd"), 8u) << "a skin tone";
    EXPECT_EQ(length("\U0001f1e9\U0001f1ea\U0001f1eb\U0001f1f7"), 8u) << "a flag";
    EXPECT_EQ(length("\xff\u0301"), 3u);
}

TEST(Fonts, FindsOneDrawableFontOfEachScript) {
    const testing::ScratchFolder folder;
    std::filesystem::create_directories(folder.file("a/b"));
    const std::string outlines = std::string("\0\1\0\0\0\1\0\0\0\0\0\0glyf", 16) + std::string(12, 0);
    const std::string bitmaps = std::string("\0\1\0\0\0\1\0\0\0\0\0\0CBDT", 16) + std::string(12, 0);
    const std::string collection = std::string("ttcf\0\1\0\0\0\0\0\1\0\0\0\x10", 16) + outlines;
    testing::write_text(folder.file("a/b/NotoSansThai[wght].ttf"), outlines);
    testing::write_text(folder.file("a/NotoSansArabic-Regular.ttf"), bitmaps);
    testing::write_text(folder.file("a/NotoSansCJK-Regular.ttc"), collection);
    testing::write_text(folder.file("a/wqy-zenhei.ttc"), collection);
    testing::write_text(folder.file("NotoEmoji-Regular.ttf"), "");
    testing::write_text(folder.file("Symbola_hint.ttf"), outlines);  // Debian's fonts-symbola
    EXPECT_EQ(find_script_fonts({folder.path(), "/nonexistent"}),
              (std::vector<std::string>{folder.file("a/b/NotoSansThai[wght].ttf"),
                                        folder.file("a/NotoSansCJK-Regular.ttc"),
                                        folder.file("Symbola_hint.ttf")}));
    EXPECT_NE(missing_font_notice(U'\u672b').find("fonts-noto-cjk (Debian"), std::string::npos);
    EXPECT_NE(missing_font_notice(U'\u0e01').find("google-noto-sans-thai-fonts (Fedora)"), std::string::npos);
    EXPECT_EQ(missing_font_notice(0xe000), "");
}

TEST(Fonts, TallFontsAreEnlarged) {
    const testing::ScratchFolder folder;
    const auto entry = [](const char* tag, char offset) {
        return std::string(tag) + std::string(7, 0) + offset + std::string(4, 0);
    };
    const auto font = [&](int ascent, int descent) {
        const auto word = [](int value) {
            return std::string{static_cast<char>(value >> 8), static_cast<char>(value & 255)};
        };
        return std::string("\0\1\0\0\0\2\0\0\0\0\0\0", 12) + entry("head", 44) + entry("hhea", 64) +
               std::string(18, 0) + word(1000) + std::string(4, 0) + word(ascent) + word(descent);
    };
    testing::write_text(folder.file("arabic.ttf"), font(1374, -738));
    testing::write_text(folder.file("latin.ttf"), font(900, -200));
    testing::write_text(folder.file("damaged.ttf"), font(1374, -738).substr(0, 50));
    EXPECT_NEAR(font_enlargement(folder.file("arabic.ttf")), 1.6, 0.001);
    EXPECT_EQ(font_enlargement(folder.file("latin.ttf")), 1);
    EXPECT_EQ(font_enlargement(folder.file("damaged.ttf")), 1);
    EXPECT_EQ(font_enlargement("/nonexistent"), 1);
}

TEST(TextLayout, TerminatesBelowOneCharacterWidth) {
    EXPECT_FALSE(lay_out_text(make_pieces({"ab cd", "\n", "ef"}), 1, ten_per_byte).empty());
}

TEST(Text, FindIgnoresCaseAndSpansPieces) {
    TextModel model;
    model.pieces = make_pieces({"The s", "ky is", " blue. Sky"});
    EXPECT_EQ(find_text(model, "SKY"), (std::vector<std::size_t>{0, 2}));
    EXPECT_TRUE(find_text(model, "").empty());
    EXPECT_TRUE(find_text(model, "green").empty());
}

TEST(Session, TreeSpecsRoundTrip) {
    for (const char* spec : {"depth=3,topk=4,nodes=12", "depth=5,topk=10,nodes=60", "chain=6"}) {
        const auto fields = parse_tree(spec);
        ASSERT_TRUE(fields.has_value()) << spec;
        EXPECT_EQ(format_tree(*fields), spec);
    }
    for (const char* spec : {"", "auto", "paper:fr-spec", "depth=x", "depth=0", "depth=3,topk", "depht=3"})
        EXPECT_FALSE(parse_tree(spec).has_value()) << spec;
    EXPECT_EQ(largest_tree(*parse_tree("depth=1,topk=2,nodes=5")), 1 + 2 + 4);
    EXPECT_EQ(largest_tree(*parse_tree("chain=6")), 7);
    EXPECT_EQ(spec_name("fr-spec:v=8192"), "fr-spec");
    EXPECT_EQ(spec_name("full"), "full");
}

TEST(Session, StoredRunShowsItsRecordedSettings) {
    Snapshot snapshot = two_runs();
    EXPECT_FALSE(recorded_settings(snapshot, 1).has_value()) << "a live run has no recorded settings";
    snapshot.source = "/captures/a.dscope";
    snapshot.runs[0].tree = "chain=3";
    snapshot.runs[0].threads = 1;
    snapshot.runs[0].precision = "int8";
    const auto settings = recorded_settings(snapshot, 1);
    ASSERT_TRUE(settings.has_value());
    EXPECT_EQ(settings->title, "this file, run 1 (one of 2): eagle2  fr-spec:v=8192  chain=3");
    EXPECT_NE(settings->details.find("int8, 1 thread, batch 1, greedy"), std::string::npos)
        << settings->details;
    RunRow plain;
    plain.drafter = "none";
    plain.tree = "none";
    EXPECT_EQ(run_drafting(plain, "  "), "no drafter");
    snapshot.runs.pop_back();
    EXPECT_EQ(recorded_settings(snapshot, 1)->title, "this file: eagle2  fr-spec:v=8192  chain=3");
    EXPECT_FALSE(recorded_settings(snapshot, 2).has_value());
}

TEST(Session, MemoryOfARun) {
    RunRow run;
    EXPECT_EQ(memory_text(run), "");
    run.config_json = R"({"memory": {"target_weights": 3221225472, "drafter_weights": 536870912,
"target_cache": 1073741824, "drafter_cache": 268435456, "positions": 4096}})";
    EXPECT_EQ(
        memory_text(run),
        "weights: 3.00 GiB of the target, 0.50 of the drafter; caches at 4096 positions: 1.00 and 0.25");
}

class Folders : public ::testing::Test {
  protected:
    Folders() {
        std::filesystem::create_directories(folder_ + "/sub");
        std::filesystem::create_directories(folder_ + "/.hidden");
        for (const char* name : {"b.dscope", "a.dscope", "notes.txt", ".x.dscope"})
            std::ofstream(folder_ + "/" + name) << "12345";
    }
    const testing::ScratchFolder scratch_;
    const std::string& folder_ = scratch_.path();
};

TEST_F(Folders, ListsFoldersFirstThenWantedFiles) {
    const auto listed = require(list_folder(folder_, {".dscope"}));
    ASSERT_EQ(listed.size(), 3u);
    EXPECT_EQ(listed[0].name, "sub");
    EXPECT_TRUE(listed[0].folder);
    EXPECT_EQ(listed[1].name, "a.dscope");
    EXPECT_EQ(listed[1].bytes, 5u);
    EXPECT_EQ(list_folder(folder_, {})->size(), 4u);
    EXPECT_FALSE(list_folder(folder_ + "/none", {}).ok());
}

TEST_F(Folders, ResolvesTypedPaths) {
    EXPECT_EQ(resolve_path("a.dscope", folder_), folder_ + "/a.dscope");
    EXPECT_EQ(resolve_path("sub/../a.dscope", folder_), folder_ + "/a.dscope");
    EXPECT_EQ(resolve_path("/x/y", folder_), "/x/y");
    EXPECT_EQ(resolve_path("..", folder_), parent_folder(folder_));
    EXPECT_EQ(parent_folder("/"), "/");
    EXPECT_EQ(size_text(999), "999 B");
    EXPECT_EQ(size_text(12'340'000), "12.3 MB");
}

}  // namespace
}  // namespace draftscope::test

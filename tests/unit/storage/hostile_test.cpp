#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <map>
#include <numeric>

#include "capture/queries.h"
#include "file_helpers.h"
#include "random_capture.h"
#include "storage/schema.h"
#include "tests/support/results.h"
#include "tests/support/scratch_folder.h"

// Captures that no valid run makes: any bytes in names, numbers at their limits, spans in any order, clocks
// that jump. The file, its copy and SQL must return all values unchanged.
namespace draftscope {
namespace {

using testing::apply_all;
using testing::expect_equal;
using testing::open_plain;
using testing::query;
using testing::RandomCapture;
using testing::ScratchFolder;

class Disturb {
  public:
    explicit Disturb(std::uint64_t seed) : rng_(seed, 4711) {}

    void operator()(Record& record) {
        std::visit([this](auto& r) { disturb(r); }, record);
    }

  private:
    std::string text() {
        static const std::string pieces[] = {"a",
                                             "\xC3\xA9",
                                             "\xF0\x9F\x90\x89",
                                             std::string(1, '\0'),
                                             "\"",
                                             "'",
                                             ",",
                                             "\r\n",
                                             "\xFF\xFE",
                                             "\xE2\x80\xAE",
                                             "%s",
                                             "</script>",
                                             "\xEF\xBB\xBF",
                                             "DROP TABLE run;",
                                             std::string(300, 'x'),
                                             "\t"};
        std::string out;
        for (std::uint32_t n = rng_.below(6); n > 0; --n) out += pieces[rng_.below(std::size(pieces))];
        return out;
    }
    std::int64_t number() {
        switch (rng_.below(4)) {
            case 0:
                return std::numeric_limits<std::int64_t>::max();
            case 1:
                return std::numeric_limits<std::int64_t>::min();
            case 2:
                return -1;
            default:
                return rng_.below(1000);
        }
    }
    double real() {
        static const double values[] = {0.0, -0.0, 1e308, -1e-308, std::numeric_limits<double>::infinity(),
                                        0.1};
        return values[rng_.below(std::size(values))];
    }
    /// Shuffles the recording order of a step's spans. Ids follow the recording order.
    void shuffle(std::vector<SpanRow>& spans) {
        std::vector<RowId> ids;
        for (const SpanRow& span : spans) ids.push_back(span.id);
        for (std::size_t i = spans.size(); i > 1; --i)
            std::swap(spans[i - 1], spans[rng_.below(static_cast<std::uint32_t>(i))]);
        for (std::size_t i = 0; i < spans.size(); ++i) spans[i].id = ids[i];
    }
    void disturb(RunStarted& r) {
        r.run.name = text();
        r.run.target = text();
        r.run.tree = text();
        r.run.config_json = text();
        r.run.seed = static_cast<std::uint64_t>(number());
    }
    void disturb(PromptStarted& r) { texts_[r.prompt.id] = r.prompt.text = text(); }
    void disturb(PromptEnded& r) {
        r.prompt.text = texts_[r.prompt.id];  // a prompt keeps its text
        r.prompt.output = text();
    }
    void disturb(StepRecord& r) {
        shuffle(r.spans);
        for (RoundRecord& round : r.rounds) {
            for (NodeRow& node : round.nodes) node.draft_logprob = static_cast<float>(real());
            for (HeadEvalRow& eval : round.head_evals) eval.head = text();
        }
    }
    void disturb(std::vector<GpuOpRow>& rows) {
        for (GpuOpRow& row : rows) {
            row.name = text();
            row.correlation_id = number();
        }
    }
    void disturb(std::vector<NvtxRangeRow>& rows) {
        for (NvtxRangeRow& row : rows) {
            row.domain = text();
            row.name = text();
            row.payload = number();
        }
    }
    void disturb(CounterRow& r) {
        r.name = text();
        r.value = real();
        r.time_ns = number();
    }
    void disturb(NoteRow& r) { r.text = text(); }
    void disturb(LossRow& r) { r.kind = text(); }
    template <typename Other>
    void disturb(Other&) {}

    Rng rng_;
    std::map<RowId, std::string> texts_;
};

/// Returns every value of a table with its type, as SQL returns it.
std::vector<std::string> dump(const storage::Database& db, std::string_view table) {
    std::vector<std::string> out;
    storage::Statement rows = db.prepare(fmt::format("SELECT * FROM {}", table));
    EXPECT_TRUE(rows) << db.message();
    while (rows.step() == SQLITE_ROW) {
        std::string line;
        for (int c = 0; c < sqlite3_column_count(rows.get()); ++c) {
            const int type = sqlite3_column_type(rows.get(), c);
            line += fmt::format("{}:", type);
            if (type == SQLITE_FLOAT)
                line += fmt::format("{}", rows.real(c));
            else
                line += type == SQLITE_BLOB ? rows.blob(c) : rows.text(c);
            line += '\x1f';
        }
        out.push_back(line);
    }
    return out;
}

/// Returns a table's rows as in its CSV file, without the header.
std::vector<std::vector<std::string>> cells(const storage::Database& db, std::string_view table) {
    std::vector<std::vector<std::string>> out;
    storage::Statement rows = db.prepare(fmt::format("SELECT * FROM {}", table));
    EXPECT_TRUE(rows) << db.message();
    while (rows.step() == SQLITE_ROW) {
        out.emplace_back();
        for (int c = 0; c < sqlite3_column_count(rows.get()); ++c) {
            std::string cell;
            switch (sqlite3_column_type(rows.get(), c)) {
                case SQLITE_FLOAT:
                    cell = fmt::format("{}", rows.real(c));
                    break;
                case SQLITE_BLOB:
                    for (const char byte : rows.blob(c))
                        cell += fmt::format("{:02x}", static_cast<unsigned char>(byte));
                    break;
                default:
                    cell = rows.text(c);
            }
            out.back().push_back(std::move(cell));
        }
    }
    return out;
}

class Hostile : public ::testing::TestWithParam<int> {};

TEST_P(Hostile, CaptureSurvivesWriteReadExportAndSqlUnchanged) {
    const ScratchFolder folder;
    const auto seed = static_cast<std::uint64_t>(GetParam());
    std::vector<Record> records =
        RandomCapture(seed, {1 + GetParam() % 3, 3, 14, 1 + GetParam() % 2, true}).records();
    Disturb disturb(seed);
    for (Record& record : records) disturb(record);
    const std::string path = folder.file("a.dscope"), copy = folder.file("copy.dscope"),
                      csv = folder.file("csv");
    testing::write_all(path, records);
    const Snapshot meant = apply_all(records);
    const auto loaded = require(load_capture(path));
    expect_equal(meant, *loaded);

    ASSERT_TRUE(export_sqlite(path, copy, false).ok());
    const auto reloaded = require(load_capture(copy));
    expect_equal(meant, *reloaded);
    const storage::Database a = open_plain(path), b = open_plain(copy);
    for (const auto& [table, since] : storage::table_names()) {
        if (table == storage::dropped_table) continue;
        EXPECT_EQ(dump(a, table), dump(b, table)) << table;
        EXPECT_TRUE(since == 1 || dump(a, table).empty() == (table == "sweep")) << table;  // no run writes it
    }

    ASSERT_TRUE(export_csv(path, csv, false).ok());
    for (const auto& [table, since] : storage::table_names()) {
        if (since > 1) continue;
        auto read = testing::parse_csv(testing::read_text(fmt::format("{}/{}.csv", csv, table)));
        ASSERT_FALSE(read.empty()) << table;
        read.erase(read.begin());
        if (table == "run")
            for (auto& row : read) row.pop_back();  // removes losslessness, which is no column of the table
        EXPECT_EQ(read, cells(a, table)) << table;
    }
    EXPECT_TRUE(export_chrome(path, folder.file("trace.json"), false).ok());
    std::size_t rows = 0;
    for (const auto& [table, since] : storage::table_names())
        if (since == 1) rows += dump(a, table).size();
    EXPECT_GT(rows, 500u);

    // An export without text keeps none of it in the file, free pages included.
    const std::string anonymous = folder.file("anonymous.dscope");
    ASSERT_TRUE(export_sqlite(path, anonymous, true).ok());
    EXPECT_EQ(query(open_plain(anonymous),
                    "SELECT count(*) FROM prompt WHERE text <> '' OR output <> '' UNION ALL SELECT count(*) "
                    "FROM note UNION ALL SELECT count(*) FROM vocab WHERE text <> '' OR length(bytes) > 0"),
              (std::vector<std::string>{"0", "0", "0"}));
    const auto without = require(load_capture(anonymous));
    EXPECT_EQ(without->steps.size(), meant.steps.size());
}
INSTANTIATE_TEST_SUITE_P(Seeds, Hostile, ::testing::Range(1, 13));

TEST(ClockGoingBackwards, IsReportedAndTheRestIsValid) {
    const ScratchFolder folder;
    const std::string path = folder.file("a.dscope");
    std::vector<Record> records = RandomCapture(9, {1, 2, 60, 1, true}).records();
    int turned = 0;
    for (Record& record : records) {
        auto* step = std::get_if<StepRecord>(&record);
        if (step == nullptr || step->step.id % 10 != 5) continue;
        ++turned;
        if (step->step.id % 20 == 5) {
            for (SpanRow& span : step->spans) std::swap(span.start_ns, span.end_ns);
        } else {  // the whole step lies before the previous one
            step->step.start_ns -= 50'000;
            step->step.end_ns -= 50'000;
            for (RoundRecord& round : step->rounds) {
                round.round.start_ns -= 50'000;
                round.round.end_ns -= 50'000;
            }
            for (SpanRow& span : step->spans) {
                span.start_ns -= 50'000;
                span.end_ns -= 50'000;
            }
        }
    }
    ASSERT_EQ(turned, 6);
    testing::write_all(path, records);
    const auto report = require(check_capture(path));
    ASSERT_FALSE(report.findings.empty());
    EXPECT_NE(report.findings[0].what.find("lasts -"), std::string::npos) << report.findings[0].what;
    const auto loaded = require(load_capture(path));
    EXPECT_EQ(loaded->steps.size(), 60u);
    for (const PhaseStats& stats : phase_stats(*loaded, 1)) {
        EXPECT_GE(stats.exposed_ns, 0) << stats.phase_id;
        EXPECT_LE(stats.share, 1.0) << stats.phase_id;
    }
    EXPECT_TRUE(export_chrome(path, folder.file("t.json"), false).ok());
}

}  // namespace
}  // namespace draftscope

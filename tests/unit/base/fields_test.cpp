#include "base/fields.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace draftscope::testing {
namespace {

using nlohmann::json;

enum class Kind { measured };
std::string to_text(Kind) {
    return "measured";
}
std::string read_text(std::string_view text, Kind& kind) {
    kind = Kind::measured;
    return text == "measured" ? "" : "measured";
}
struct Point {
    std::string name, note = "";
    int rows = 1;
    double ms = 0;
    std::optional<double> error = {};
    std::vector<int> samples = {};
    bool complete = true;
    Kind kind = Kind::measured;

    double per_row() const { return ms / rows; }
};
constexpr auto point_fields =
    join(required(DS_FIELDS(Point, name)), null_if_none(DS_FIELDS(Point, note, error)),
         between(1, 8, DS_FIELDS(Point, rows)), at_least(0, required(DS_FIELDS(Point, ms))),
         omitted_if_none(DS_FIELDS(Point, samples)), DS_FIELDS(Point, complete, kind, per_row),
         as([](double ms) { return 1e3 * ms; }, field("ms", &Point::ms), "_as_us"));

Point read_or_throw(const std::string& text) {
    Point point;
    const Status read = read_fields(point_fields, *JsonFile::parse(text, "a.json", "; make it again"), point);
    if (!read.ok()) throw std::runtime_error(read.error().message);
    return point;
}

std::string error_message(const std::string& text) {
    try {
        read_or_throw(text);
    } catch (const std::runtime_error& error) {
        return error.what();
    }
    return "";
}

TEST(Fields, AreWrittenByTheirRules) {
    Point point{.name = "a", .rows = 2, .ms = 3};
    EXPECT_EQ(write_fields(point_fields, point), json::parse(R"({"name": "a", "note": null, "error": null,
        "rows": 2, "ms": 3.0, "complete": true, "kind": "measured", "per_row": 1.5, "ms_as_us": 3000.0})"));
    point.samples = {1, 2};
    point.error = 0.5;
    EXPECT_EQ(write_fields(point_fields, point)["samples"], json({1, 2}));
    EXPECT_EQ(list_of(point_fields)(std::vector{point, point})[1]["error"], json(0.5));
    const auto ordered = write_fields<nlohmann::ordered_json>(DS_FIELDS(Point, rows, name), point);
    EXPECT_EQ(ordered.dump(), R"({"rows":2,"name":"a"})");
}

TEST(Fields, AreReadAgain) {
    const Point point{.name = "a", .rows = 2, .ms = 3, .error = 0.5, .samples = {1, 2}, .complete = false};
    const Point read = read_or_throw(write_fields(point_fields, point).dump());
    EXPECT_EQ(write_fields(point_fields, read), write_fields(point_fields, point));
    EXPECT_EQ(read_or_throw(R"({"name": "a", "ms": 0})").rows, 1);
}

TEST(Fields, NameWhatIsWrong) {
    EXPECT_EQ(error_message(R"({"ms": 1})"), "a.json: name is missing, expected a string; make it again");
    EXPECT_EQ(error_message(R"({"name": "", "ms": 1})"),
              "a.json: name is \"\", expected one that is not empty; make it again");
    EXPECT_EQ(error_message(R"({"name": "a", "ms": -1})"),
              "a.json: ms is -1, expected a number of at least 0; make it again");
    EXPECT_EQ(error_message(R"({"name": "a", "ms": 1, "rows": 9})"),
              "a.json: rows is 9, expected an integer of 1 to 8; make it again");
    EXPECT_EQ(error_message(R"({"name": "a", "ms": 1, "samples": [1, "b"]})"),
              "a.json: samples is [1,\"b\"], expected a list, each an integer of -2147483648 to 2147483647; "
              "make it again");
    EXPECT_EQ(error_message(R"({"name": "a", "ms": 1, "complete": 1})"),
              "a.json: complete is 1, expected true or false; make it again");
    EXPECT_EQ(error_message(R"({"name": "a", "ms": 1, "kind": "other"})"),
              "a.json: kind is \"other\", expected measured; make it again");
}

TEST(Fields, OfListsNameTheRow) {
    const auto file = JsonFile::parse(R"({"points": [{"name": "a", "ms": 1}, {"name": 2}]})", "a.json");
    const auto points = file->objects("points");
    ASSERT_TRUE(points.ok());
    Point point;
    EXPECT_TRUE(read_fields(point_fields, (*points)[0], point).ok());
    EXPECT_EQ(read_fields(point_fields, (*points)[1], point).error().message,
              "a.json: points[1].name is 2, expected a string");
    EXPECT_FALSE(file->objects("other").ok());
}

}  // namespace
}  // namespace draftscope::testing

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/enum_text.h"
#include "base/fields.h"
#include "stats/machine_profile.h"

namespace draftscope {
namespace {

using nlohmann::json;

constexpr std::string_view format_name = "draftscope-profile";
constexpr int format_version = 2;

constexpr std::string_view kind_texts[] = {"measured", "estimate", "published"};
constexpr std::string_view part_texts[] = {"verify", "overhead", "catch_up", "level", "head", "draft"};

}  // namespace

std::string_view to_text(ProfileKind kind) {
    return enum_text(kind_texts, kind);
}
std::string_view to_text(CostPart part) {
    return enum_text(part_texts, part);
}
static std::string read_text(std::string_view text, ProfileKind& kind) {
    return read_enum(kind_texts, text, kind);
}
static std::string read_text(std::string_view text, CostPart& part) {
    return read_enum(part_texts, text, part);
}

namespace {

constexpr auto size_fields =
    join(at_least(1, required(DS_FIELDS(CostSizes, rows))), at_least(1, DS_FIELDS(CostSizes, batch)),
         at_least(0, omitted_if_none(DS_FIELDS(CostSizes, context, size, first_level))));
constexpr auto time_fields =
    at_least(0, join(required(DS_FIELDS(CostPoint, ms)), DS_FIELDS(CostPoint, spread, samples)));
constexpr auto part_fields = join(required(DS_FIELDS(PartCost, part)),
                                  omitted_if_none(DS_FIELDS(PartCost, drafter, head, size_parameter)));
constexpr auto curve_fields = at_least(0, DS_FIELDS(CostCurve, error, worst));
constexpr auto profile_fields =
    join(required(DS_FIELDS(MachineProfile, kind, source, machine, backend, precision, model)),
         DS_FIELDS(MachineProfile, note, date, cpu, isa, gpu, synthetic, complete, sessions, skipped),
         at_least(0, DS_FIELDS(MachineProfile, threads, clock_mhz, read_gb_per_s, other_load, layers)),
         at_least(1, required(DS_FIELDS(MachineProfile, vocab, hidden))));

constexpr auto control_fields = DS_FIELDS(MachineProfile, controls);

/// Rounds all numbers to six significant digits, so that files stay small.
json rounded(json value) {
    if (value.is_structured())
        for (json& one : value) one = rounded(std::move(one));
    if (!value.is_number_float()) return value;
    const double number = value.get<double>();
    if (number == 0 || !std::isfinite(number)) return 0.0;
    const double scale = std::pow(10.0, 5 - std::floor(std::log10(std::abs(number))));
    return std::round(number * scale) / scale;
}

std::string dump(const json& value, int indent = -1) {
    return value.dump(indent, ' ', false, json::error_handler_t::replace);
}

json to_json(const CostPoint& point) {
    json out = write_fields(size_fields, point.at);
    if (point.at.batch == 1) out.erase("batch");
    out.update(write_fields(time_fields, point));
    return out;
}

json to_json(const PartCost& part) {
    json out = write_fields(part_fields, part), terms = json::object(), points = json::array();
    for (const TermCost& one : part.curve.terms) terms[std::string(to_text(one.term))] = one.ms;
    for (const CostPoint& point : part.curve.points) points.push_back(to_json(point));
    out.update(write_fields(curve_fields, part.curve));
    out["terms"] = std::move(terms);
    out["points"] = std::move(points);
    return rounded(std::move(out));
}

Status read_terms(const JsonFile& file, CostCurve& curve) {
    DS_ASSIGN(const auto terms, file.object("terms"));
    if (!terms) return file.field_error("terms", "an object of numbers");
    for (const auto& [name, value] : terms->json().items()) {
        const auto term = parse_cost_term(name);
        if (!term) return file.field_error("terms", fmt::format("known terms, not '{}'", name));
        if (!value.is_number() || !(value.get<double>() >= 0))
            return file.field_error("terms", fmt::format("a number of at least 0 for {}", name));
        curve.terms.push_back({*term, value.get<double>()});
    }
    return {};
}

Status read_part(const JsonFile& file, PartCost& out) {
    DS_TRY(read_fields(part_fields, file, out));
    const bool any_drafter = out.part == CostPart::verify || out.part == CostPart::overhead;
    if (!any_drafter) DS_TRY(read_fields(required(DS_FIELDS(PartCost, drafter)), file, out));
    if (out.part == CostPart::head) DS_TRY(read_fields(required(DS_FIELDS(PartCost, head)), file, out));
    DS_TRY(read_terms(file, out.curve));
    DS_TRY(read_fields(curve_fields, file, out.curve));
    if (file.find("points") == nullptr) return {};
    DS_ASSIGN(const std::vector<JsonFile> points, file.objects("points"));
    for (const JsonFile& one : points) {
        CostPoint& point = out.curve.points.emplace_back();
        DS_TRY(read_fields(size_fields, one, point.at));
        DS_TRY(read_fields(time_fields, one, point));
    }
    return {};
}

}  // namespace

Result<MachineProfile> parse_profile(const std::string& text, const std::string& path) {
    const auto file = JsonFile::parse(text, path, "; make the profile again with draftscope profile-machine");
    if (!file || file->json().value("format", json()) != json(format_name))
        return bad_input("{}: is no machine profile; make one with draftscope profile-machine", path);
    DS_ASSIGN(const int version, file->required_count("version", 1 << 30));
    if (version > format_version)
        return bad_input("{}: version {} of machine profiles is newer than this program's {}; update it",
                         path, version, format_version);
    MachineProfile profile;
    profile.path = path;
    DS_TRY(read_fields(profile_fields, *file, profile));
    const Status controls = read_fields(control_fields, *file, profile);
    const auto is_time = [](double ms) { return ms > 0; };
    if (!controls.ok() || (!profile.controls.empty() && profile.controls.size() != profile.sessions.size()) ||
        !std::ranges::all_of(profile.controls, is_time))
        return file->field_error("controls", "a number above 0 for each session");
    DS_ASSIGN(const std::vector<JsonFile> costs, file->objects("costs"));
    for (const JsonFile& one : costs) {
        PartCost part;
        DS_TRY(read_part(one, part));
        if (profile.find(part.part, part.drafter, part.head) != nullptr)
            return bad_input("{}: costs[{}] repeats the {} of an earlier entry; delete one", path,
                             profile.costs.size(), to_text(part.part));
        profile.costs.push_back(std::move(part));
    }
    if (!profile.controls.empty())
        for (PartCost& part : profile.costs) part.curve.explain_residuals();
    return profile;
}

Result<MachineProfile> read_profile(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    file.peek();  // a folder can be opened, but not read
    if (!file) return bad_input("{}: can't be read; name a machine profile", path);
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    return parse_profile(text, path);
}

std::string to_json(const MachineProfile& profile) {
    json head = rounded(write_fields(join(profile_fields, control_fields), profile));
    head["format"] = format_name;
    head["version"] = format_version;
    // One line for each curve, so that a file with many points can still be read.
    std::string text = dump(head, 1);
    text.resize(text.rfind("\n}"));
    text += ",\n \"costs\": [";
    for (std::size_t i = 0; i < profile.costs.size(); ++i)
        text += (i == 0 ? "\n  " : ",\n  ") + dump(to_json(profile.costs[i]));
    return text + "\n ]\n}\n";
}

Status write_profile(const MachineProfile& profile) {
    const std::string partial = profile.path + ".partial";
    {
        std::ofstream file(partial, std::ios::binary);
        if (!file)
            return bad_input("{}: can't be written; name a file in a folder that exists", profile.path);
        file << to_json(profile);
        file.flush();
        if (!file) return failed("{}: can't be written completely; is the disk full?", partial);
    }
    std::error_code error;
    std::filesystem::rename(partial, profile.path, error);
    if (error) return failed("{}: can't be replaced: {}", profile.path, error.message());
    return {};
}

}  // namespace draftscope

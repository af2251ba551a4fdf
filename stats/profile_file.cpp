#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "stats/machine_profile.h"

namespace draftscope {
namespace {

using nlohmann::json;

constexpr std::string_view format_name = "draftscope-profile";
constexpr int format_version = 2;

template <typename T>
struct Named {
    T value;
    std::string_view text;
};
constexpr Named<ProfileKind> kinds[] = {{ProfileKind::measured, "measured"},
                                        {ProfileKind::estimate, "estimate"},
                                        {ProfileKind::published, "published"}};
constexpr Named<CostPart> parts[] = {{CostPart::verify, "verify"},     {CostPart::overhead, "overhead"},
                                     {CostPart::catch_up, "catch_up"}, {CostPart::level, "level"},
                                     {CostPart::head, "head"},         {CostPart::draft, "draft"}};

template <typename T, std::size_t N>
std::string_view name_of(const Named<T> (&names)[N], T value) {
    for (const Named<T>& one : names)
        if (one.value == value) return one.text;
    return "";
}

template <typename T, std::size_t N>
std::optional<T> value_named(const Named<T> (&names)[N], std::string_view text) {
    for (const Named<T>& one : names)
        if (one.text == text) return one.value;
    return std::nullopt;
}

/// Returns a number with six significant digits, so that files stay small.
double rounded(double value) {
    if (value == 0 || !std::isfinite(value)) return 0;
    const double scale = std::pow(10.0, 5 - std::floor(std::log10(std::abs(value))));
    return std::round(value * scale) / scale;
}

std::string dump(const json& value, int indent = -1) {
    return value.dump(indent, ' ', false, json::error_handler_t::replace);
}

/// Reads the fields of a JSON object. Errors name the file and the field.
class Fields {
  public:
    Fields(const std::string& path, std::string prefix, const json& object)
        : path_(path), prefix_(std::move(prefix)), object_(object) {}

    Error error(std::string_view field, std::string_view expected) const {
        const json* found = find(field);
        std::string value = found == nullptr ? "missing" : dump(*found);
        constexpr std::size_t max_shown = 60;
        if (value.size() > max_shown) value = value.substr(0, max_shown) + "...";
        return bad_input(
            "{}: {}{} is {}, expected {}; make the profile again with draftscope profile-machine", path_,
            prefix_, field, value, expected);
    }
    const json* find(std::string_view field) const {
        const auto found = object_.find(field);
        return found == object_.end() || found->is_null() ? nullptr : &*found;
    }
    Result<std::string> text(std::string_view field, bool required = false) const {
        const json* found = find(field);
        if (found == nullptr && !required) return std::string();
        if (found == nullptr || !found->is_string() || (required && found->get<std::string>().empty()))
            return error(field, "a text");
        return found->get<std::string>();
    }
    /// Returns a number of at least `low`; `absent` if there is none.
    Result<double> number(std::string_view field, double low, std::optional<double> absent) const {
        const json* found = find(field);
        if (found == nullptr && absent) return *absent;
        if (found == nullptr || !found->is_number() || !(found->get<double>() >= low))
            return error(field, fmt::format("a number of at least {}", low));
        return found->get<double>();
    }
    Result<int> count(std::string_view field, int low, std::optional<int> absent) const {
        constexpr int max_count = 1 << 30;
        const json* found = find(field);
        if (found == nullptr && absent) return *absent;
        if (found == nullptr || !found->is_number_integer() || found->get<std::int64_t>() < low ||
            found->get<std::int64_t>() > max_count)
            return error(field, fmt::format("a whole number of at least {}", low));
        return found->get<int>();
    }
    Result<bool> flag(std::string_view field, bool absent) const {
        const json* found = find(field);
        if (found == nullptr) return absent;
        if (!found->is_boolean()) return error(field, "true or false");
        return found->get<bool>();
    }
    Result<std::vector<std::string>> texts(std::string_view field) const {
        std::vector<std::string> list;
        const json* found = find(field);
        if (found == nullptr) return list;
        if (!found->is_array()) return error(field, "a list of texts");
        for (const json& one : *found) {
            if (!one.is_string()) return error(field, "a list of texts");
            list.push_back(one.get<std::string>());
        }
        return list;
    }

  private:
    const std::string& path_;
    std::string prefix_;
    const json& object_;
};

json to_json(const CostPoint& point) {
    json out = {{"rows", rounded(point.at.rows)},
                {"ms", rounded(point.ms)},
                {"spread", rounded(point.spread)},
                {"samples", point.samples}};
    if (point.at.batch != 1) out["batch"] = point.at.batch;
    if (point.at.context != 0) out["context"] = rounded(point.at.context);
    if (point.at.size != 0) out["size"] = rounded(point.at.size);
    if (point.at.first_level) out["first_level"] = true;
    return out;
}

Result<CostPoint> read_point(const std::string& path, const std::string& prefix, const json& value) {
    if (!value.is_object()) return bad_input("{}: {} is no object", path, prefix);
    const Fields fields(path, prefix + ".", value);
    CostPoint point;
    DS_ASSIGN(point.at.rows, fields.number("rows", 1, std::nullopt));
    DS_ASSIGN(point.at.batch, fields.number("batch", 1, 1.0));
    DS_ASSIGN(point.at.context, fields.number("context", 0, 0.0));
    DS_ASSIGN(point.at.size, fields.number("size", 0, 0.0));
    DS_ASSIGN(point.at.first_level, fields.flag("first_level", false));
    DS_ASSIGN(point.ms, fields.number("ms", 0, std::nullopt));
    DS_ASSIGN(point.spread, fields.number("spread", 0, 0.0));
    DS_ASSIGN(point.samples, fields.count("samples", 0, 0));
    return point;
}

json to_json(const PartCost& part) {
    json terms = json::object();
    for (const TermCost& one : part.curve.terms) terms[std::string(to_text(one.term))] = rounded(one.ms);
    const auto known = [](const std::optional<double>& value) {
        return value ? json(rounded(*value)) : json();
    };
    json out = {{"part", to_text(part.part)},
                {"terms", std::move(terms)},
                {"error", known(part.curve.error)},
                {"worst", known(part.curve.worst)},
                {"points", json::array()}};
    if (!part.drafter.empty()) out["drafter"] = part.drafter;
    if (!part.head.empty()) out["head"] = part.head;
    if (!part.size_parameter.empty()) out["size_parameter"] = part.size_parameter;
    for (const CostPoint& point : part.curve.points) out["points"].push_back(to_json(point));
    return out;
}

Status read_terms(const Fields& fields, CostCurve& curve) {
    const json* terms = fields.find("terms");
    if (terms == nullptr || !terms->is_object()) return fields.error("terms", "an object of numbers");
    for (const auto& [name, value] : terms->items()) {
        const auto term = parse_cost_term(name);
        if (!term) return fields.error("terms", fmt::format("known terms, not '{}'", name));
        if (!value.is_number() || !(value.get<double>() >= 0))
            return fields.error("terms", fmt::format("a number of at least 0 for {}", name));
        curve.terms.push_back({*term, value.get<double>()});
    }
    return {};
}

Result<PartCost> read_part(const std::string& path, const std::string& prefix, const json& value) {
    if (!value.is_object()) return bad_input("{}: {} is no object", path, prefix);
    const Fields fields(path, prefix + ".", value);
    PartCost out;
    DS_ASSIGN(const std::string part_name, fields.text("part", true));
    const auto part = value_named(parts, part_name);
    if (!part) return fields.error("part", "verify, overhead, catch_up, level, head or draft");
    out.part = *part;
    const bool any_drafter = out.part == CostPart::verify || out.part == CostPart::overhead;
    DS_ASSIGN(out.drafter, fields.text("drafter", !any_drafter));
    DS_ASSIGN(out.head, fields.text("head", out.part == CostPart::head));
    DS_ASSIGN(out.size_parameter, fields.text("size_parameter"));
    DS_TRY(read_terms(fields, out.curve));
    const auto optional_number = [&](const char* field, std::optional<double>& into) -> Status {
        if (fields.find(field) == nullptr) return {};
        DS_ASSIGN(into, fields.number(field, 0, std::nullopt));
        return {};
    };
    DS_TRY(optional_number("error", out.curve.error));
    DS_TRY(optional_number("worst", out.curve.worst));
    const json* points = fields.find("points");
    if (points == nullptr) return out;
    if (!points->is_array()) return fields.error("points", "a list");
    for (const json& point : *points) {
        const std::string name = fmt::format("{}.points[{}]", prefix, out.curve.points.size());
        DS_ASSIGN(CostPoint read, read_point(path, name, point));
        out.curve.points.push_back(read);
    }
    return out;
}

Status read_identity(const Fields& fields, MachineProfile& profile) {
    DS_ASSIGN(const std::string kind_name, fields.text("kind", true));
    const auto kind = value_named(kinds, kind_name);
    if (!kind) return fields.error("kind", "measured, estimate or published");
    profile.kind = *kind;
    DS_ASSIGN(profile.source, fields.text("source", true));
    DS_ASSIGN(profile.note, fields.text("note"));
    DS_ASSIGN(profile.date, fields.text("date"));
    DS_ASSIGN(profile.machine, fields.text("machine", true));
    DS_ASSIGN(profile.cpu, fields.text("cpu"));
    DS_ASSIGN(profile.isa, fields.text("isa"));
    DS_ASSIGN(profile.gpu, fields.text("gpu"));
    DS_ASSIGN(profile.threads, fields.count("threads", 0, 0));
    DS_ASSIGN(profile.clock_mhz, fields.number("clock_mhz", 0, 0.0));
    DS_ASSIGN(profile.read_gb_per_s, fields.number("read_gb_per_s", 0, 0.0));
    DS_ASSIGN(profile.other_load, fields.number("other_load", 0, 0.0));
    DS_ASSIGN(profile.backend, fields.text("backend", true));
    DS_ASSIGN(profile.precision, fields.text("precision", true));
    DS_ASSIGN(profile.model, fields.text("model", true));
    DS_ASSIGN(profile.vocab, fields.count("vocab", 1, std::nullopt));
    DS_ASSIGN(profile.hidden, fields.count("hidden", 1, std::nullopt));
    DS_ASSIGN(profile.layers, fields.count("layers", 0, 0));
    DS_ASSIGN(profile.synthetic, fields.flag("synthetic", false));
    DS_ASSIGN(profile.complete, fields.flag("complete", true));
    DS_ASSIGN(profile.sessions, fields.texts("sessions"));
    DS_ASSIGN(profile.skipped, fields.texts("skipped"));
    const json* controls = fields.find("controls");
    if (controls == nullptr || *controls == json::array()) return {};
    const auto is_time = [](const json& one) { return one.is_number() && one.get<double>() > 0; };
    if (!controls->is_array() || controls->size() != profile.sessions.size() ||
        !std::ranges::all_of(*controls, is_time))
        return fields.error("controls", "a number above 0 for each session");
    for (const json& one : *controls) profile.controls.push_back(one.get<double>());
    return {};
}

}  // namespace

std::string_view to_text(ProfileKind kind) {
    return name_of(kinds, kind);
}

std::string_view to_text(CostPart part) {
    return name_of(parts, part);
}

Result<MachineProfile> parse_profile(const std::string& text, const std::string& path) {
    const json document = json::parse(text, nullptr, false);
    if (!document.is_object() || document.value("format", json()) != json(format_name))
        return bad_input("{}: is no machine profile; make one with draftscope profile-machine", path);
    MachineProfile profile;
    profile.path = path;
    const Fields fields(path, "", document);
    DS_ASSIGN(const int version, fields.count("version", 1, std::nullopt));
    if (version > format_version)
        return bad_input("{}: version {} of machine profiles is newer than this program's {}; update it",
                         path, version, format_version);
    DS_TRY(read_identity(fields, profile));
    const json* costs = fields.find("costs");
    if (costs == nullptr || !costs->is_array()) return fields.error("costs", "a list");
    for (const json& cost : *costs) {
        const std::string name = fmt::format("costs[{}]", profile.costs.size());
        DS_ASSIGN(PartCost part, read_part(path, name, cost));
        if (profile.find(part.part, part.drafter, part.head) != nullptr)
            return bad_input("{}: {} repeats the {} of an earlier entry; delete one", path, name,
                             to_text(part.part));
        profile.costs.push_back(std::move(part));
    }
    if (!profile.controls.empty())
        for (PartCost& part : profile.costs) part.curve.explain_residuals();
    return profile;
}

Result<MachineProfile> read_profile(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    if (!file) return bad_input("{}: can't be read; name a machine profile", path);
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    return parse_profile(text, path);
}

std::string to_json(const MachineProfile& profile) {
    json controls = json::array();
    for (const double ms : profile.controls) controls.push_back(rounded(ms));
    const json head = {{"format", format_name},
                       {"version", format_version},
                       {"kind", to_text(profile.kind)},
                       {"source", profile.source},
                       {"note", profile.note},
                       {"date", profile.date},
                       {"machine", profile.machine},
                       {"cpu", profile.cpu},
                       {"isa", profile.isa},
                       {"gpu", profile.gpu},
                       {"threads", profile.threads},
                       {"clock_mhz", rounded(profile.clock_mhz)},
                       {"read_gb_per_s", rounded(profile.read_gb_per_s)},
                       {"other_load", rounded(profile.other_load)},
                       {"backend", profile.backend},
                       {"precision", profile.precision},
                       {"model", profile.model},
                       {"vocab", profile.vocab},
                       {"hidden", profile.hidden},
                       {"layers", profile.layers},
                       {"synthetic", profile.synthetic},
                       {"complete", profile.complete},
                       {"sessions", profile.sessions},
                       {"controls", std::move(controls)},
                       {"skipped", profile.skipped}};
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

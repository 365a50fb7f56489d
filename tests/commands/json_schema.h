// tests/commands/json_schema.h -- whether a JSON document fits a schema of docs/schema.
#pragma once

#include <algorithm>
#include <fstream>
#include <string>

#include <nlohmann/json.hpp>

namespace cad {

// The parts of JSON Schema that the files of docs/schema use.
inline bool fits(const nlohmann::json& value, const nlohmann::json& schema,
                 const nlohmann::json& root) {
  using nlohmann::json;
  if (schema.contains("$ref")) {
    const std::string name = schema["$ref"];
    return fits(value, root["$defs"][name.substr(name.rfind('/') + 1)], root);
  }
  if (schema.contains("oneOf")) {
    int matches = 0;
    for (const json& choice : schema["oneOf"]) matches += fits(value, choice, root) ? 1 : 0;
    return matches == 1;
  }
  if (schema.contains("const") && value != schema["const"]) return false;
  if (schema.contains("enum") &&
      std::find(schema["enum"].begin(), schema["enum"].end(), value) == schema["enum"].end())
    return false;
  if (schema.contains("type")) {
    const json types = schema["type"].is_array() ? schema["type"] : json::array({schema["type"]});
    bool any = false;
    for (const json& type : types) {
      any = any || (type == "object" && value.is_object()) ||
            (type == "array" && value.is_array()) || (type == "string" && value.is_string()) ||
            (type == "integer" && value.is_number_integer()) ||
            (type == "number" && value.is_number()) || (type == "boolean" && value.is_boolean()) ||
            (type == "null" && value.is_null());
    }
    if (!any) return false;
  }
  if (schema.contains("minimum") && value.is_number() &&
      value.get<double>() < schema["minimum"].get<double>())
    return false;
  if (schema.contains("items")) {
    for (const json& item : value) {
      if (!fits(item, schema["items"], root)) return false;
    }
  }
  if (!value.is_object()) return true;
  for (const json& name : schema.value("required", json::array())) {
    if (!value.contains(name.get<std::string>())) return false;
  }
  for (const auto& [name, item] : value.items()) {
    if (schema.contains("properties") && schema["properties"].contains(name)) {
      if (!fits(item, schema["properties"][name], root)) return false;
    } else if (schema.contains("additionalProperties")) {
      const json& rest = schema["additionalProperties"];
      if (rest.is_boolean() ? !rest.get<bool>() : !fits(item, rest, root)) return false;
    }
  }
  return true;
}

// docs/schema/NAME.json
inline bool fits_schema(const nlohmann::json& value, const std::string& name) {
  const std::string path = std::string(COLAUTO_SOURCE_DIR) + "/docs/schema/" + name + ".json";
  const nlohmann::json schema = nlohmann::json::parse(std::ifstream(path));
  return fits(value, schema, schema);
}

}  // namespace cad

// frontend/section_checker.h -- one pass over the sections of a program: keys against tables,
// values into the structs of section_data.h. Split over section_keys.cc (keys, machines),
// section_sources.cc (data), section_train.cc (train, eval, save) and section_optimizers.cc.
#pragma once

#include <map>
#include <string>

#include "frontend/section_data.h"
#include "frontend/section_values.h"

namespace cad::frontend {

class SectionChecker {
 public:
  SectionChecker(Module& module, SectionData& data, Diagnostics& diagnostics)
      : module_(module), data_(data), diagnostics_(diagnostics), read_(module, diagnostics) {}

  void run();

 private:
  // The settings of a section by key, after all keys were checked.
  using Settings = std::map<std::string, ExprId>;
  Settings check_keys(const Section& section, const SectionTable& table);
  std::string unknown_key(const Section& section, const SectionTable& table, const Name& key);
  void missing_key(const Section& section, const Key& key);
  void check_nested(const Section& section, const SectionTable& table);
  const SectionTable* top_table(const Section& section);
  [[nodiscard]] const Section& section(SectionId id) const {
    return module_.main().ast.section(id);
  }
  [[nodiscard]] const Expr& expr(ExprId id) const { return module_.main().ast.expr(id); }
  // The elements of a list in parentheses; the value itself when it is no list.
  [[nodiscard]] std::vector<Arg> elements(ExprId value) const;

  // section_keys.cc: machines
  void read_device(const Section& section);
  void read_cluster(const Section& section);
  void read_mesh(const Section& section);
  void read_plan(const Section& section);
  std::optional<LinkSpec> read_link(const Key& key, ExprId value);
  void check_size(const ClusterSpec& cluster, Span where);
  void check_names_of_machines();

  // section_sources.cc
  std::vector<DataUse> read_data(const Key& key, ExprId value, const std::vector<DataUse>* train);
  std::optional<DataUse> read_source(const Key& key, ExprId value);
  bool read_declaration(DataUse& use, const Arg& arg);
  bool check_source(const DataUse& use, bool declared);
  bool reuse_names(std::vector<DataUse>& uses, const std::vector<DataUse>& train, Span where);
  void unknown_dim(const Name& dim);
  bool check_declarations(const std::vector<DataUse>& uses);

  // section_train.cc
  void read_train(const Section& section);
  void read_numbers(TrainUse& train, const Settings& settings, const SectionTable& table);
  void read_eval(const Section& section, TrainUse& train);
  void read_save(const Section& section, TrainUse& train);
  void read_init(const Key& key, ExprId value, TrainUse& train);
  void read_best(const Key& key, ExprId value, TrainUse& train);
  void read_metrics(const Key& key, ExprId value, EvalUse& eval);
  void read_optimizers(const Key& key, ExprId value, TrainUse& train);
  std::optional<OptimizerUse> read_optimizer(const Key& key, ExprId value);
  bool read_optimizer_argument(OptimizerUse& use, const Arg& arg, bool first);
  bool read_paths(OptimizerUse& use, const Arg& arg);
  bool read_numbered_constants(OptimizerUse& use, const Arg& arg, const Expr& tuple);
  void unknown_argument(const OptimizerUse& use, const Arg& arg);
  bool read_built_in_argument(OptimizerUse& use, const Arg& arg);
  bool find_optimizer(OptimizerUse& use, const Expr& callee);

  Module& module_;
  SectionData& data_;
  Diagnostics& diagnostics_;
  ValueReader read_;
};

// Whether a definition can be an optimizer or a schedule, by its signature.
bool is_optimizer(const Definition& definition);
bool is_schedule(const Definition& definition);

}  // namespace cad::frontend

#include "app/gui/common/json_object.h"

#include <QJsonDocument>
#include <nlohmann/json.hpp>

#include "simulator/text/json_text.h"

namespace pw::gui {

QJsonObject readObject(const QByteArray& text) {
  const auto ignore = [](const std::string&) {};
  const auto json = readJson<nlohmann::json>({text.constData(), static_cast<std::size_t>(text.size())}, ignore);
  return json.is_object() ? QJsonDocument::fromJson(text).object() : QJsonObject();
}

}  // namespace pw::gui

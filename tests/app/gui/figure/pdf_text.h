#pragma once

#include <QByteArray>
#include <QHash>
#include <QRegularExpression>
#include <QString>

namespace pw::gui {

/// What can be read from a PDF that Qt wrote: the text of each font's glyphs by its ToUnicode table, in the order of the page. Blanks of
/// every kind are spaces.
inline QString textOfPdf(const QByteArray& pdf) {
  const QString file = QString::fromLatin1(pdf);
  const auto object = [&](const QString& number) {
    const qsizetype at = file.indexOf(QLatin1Char('\n') + number + QStringLiteral(" 0 obj"));
    return at < 0 ? QString() : file.mid(at, file.indexOf(QStringLiteral("endobj"), at) - at);
  };
  // Tables of glyphs: `<first> <last> [<code> …]` and `<first> <last> <code>`.
  static const QRegularExpression kUnicode(QStringLiteral("/ToUnicode (\\d+) 0 R")), kFont(QStringLiteral("/F(\\d+) \\1 0 R")),
      kRange(QStringLiteral("<([0-9A-F]{4})> <([0-9A-F]{4})> (\\[[^\\]]*\\]|<[0-9A-F]{4}>)")), kCode(QStringLiteral("<([0-9A-F]{4})>")),
      kShown(QStringLiteral("/F(\\d+) [0-9.]+ Tf|<([0-9a-fA-F]+)> Tj|\\bET\\b"));
  QHash<QString, QHash<int, QChar>> fonts;
  for (auto font = kFont.globalMatch(file); font.hasNext();) {
    const QString number = font.next().captured(1), table = object(kUnicode.match(object(number)).captured(1));
    for (auto range = kRange.globalMatch(table); range.hasNext();) {
      const auto found = range.next();
      int glyph = found.captured(1).toInt(nullptr, 16), code = 0;
      for (auto listed = kCode.globalMatch(found.captured(3)); listed.hasNext(); ++glyph) {
        code = listed.next().captured(1).toInt(nullptr, 16);
        fonts[number][glyph] = QChar(code);
      }
      for (; glyph <= found.captured(2).toInt(nullptr, 16); ++glyph) fonts[number][glyph] = QChar(++code);  // of a range of codes
    }
  }
  QString text;
  for (qsizetype at = pdf.indexOf("stream\n"); at >= 0; at = pdf.indexOf("\nstream\n", at + 1)) {
    const QByteArray packed = pdf.mid(pdf.indexOf('\n', at + 1) + 1, pdf.indexOf("endstream", at) - at);
    if (!packed.startsWith('\x78')) continue;  // not compressed: a table
    const QString page = QString::fromLatin1(qUncompress(QByteArray("\x01\x00\x00\x00", 4) + packed));
    QString now;
    for (auto part = kShown.globalMatch(page); part.hasNext();) {
      const auto found = part.next();
      if (!found.captured(1).isEmpty()) now = found.captured(1);
      const QString glyphs = found.captured(2);
      for (qsizetype i = 0; i + 4 <= glyphs.size(); i += 4) text += fonts[now].value(glyphs.mid(i, 4).toInt(nullptr, 16), QLatin1Char('?'));
      if (found.captured(0) == QLatin1String("ET")) text += QLatin1Char('\n');
    }
  }
  for (QChar& c : text) {
    if (c != QLatin1Char('\n') && c.isSpace()) c = QLatin1Char(' ');
  }
  return text;
}

}  // namespace pw::gui

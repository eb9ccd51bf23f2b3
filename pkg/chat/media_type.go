package chat

import (
	"cmp"
	"path"
	"slices"
	"strings"
)

// mimeTypes are the types of common documents. The operating system's table differs between machines.
var mimeTypes = map[string]string{
	".3gp":         "audio/3gpp",
	".aac":         "audio/aac",
	".ai":          "application/postscript",
	".aif":         "audio/x-aiff",
	".aiff":        "audio/x-aiff",
	".au":          "audio/basic",
	".avi":         "video/x-msvideo",
	".avif":        "image/avif",
	".bat":         "text/plain",
	".bmp":         "image/bmp",
	".c":           "text/plain",
	".csh":         "application/x-csh",
	".css":         "text/css",
	".csv":         "text/csv",
	".doc":         "application/msword",
	".docx":        "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
	".dot":         "application/msword",
	".eml":         "message/rfc822",
	".eps":         "application/postscript",
	".epub":        "application/epub+zip",
	".gif":         "image/gif",
	".h":           "text/plain",
	".heic":        "image/heic",
	".heif":        "image/heif",
	".htm":         "text/html",
	".html":        "text/html",
	".ico":         "image/vnd.microsoft.icon",
	".jpe":         "image/jpeg",
	".jpeg":        "image/jpeg",
	".jpg":         "image/jpeg",
	".js":          "text/javascript",
	".json":        "application/json",
	".ksh":         "text/plain",
	".latex":       "application/x-latex",
	".man":         "application/x-troff-man",
	".md":          "text/markdown",
	".mht":         "message/rfc822",
	".mhtml":       "message/rfc822",
	".mjs":         "text/javascript",
	".mov":         "video/quicktime",
	".mp2":         "audio/mpeg",
	".mp3":         "audio/mpeg",
	".mp4":         "video/mp4",
	".mpeg":        "video/mpeg",
	".mpg":         "video/mpeg",
	".n3":          "text/n3",
	".nq":          "application/n-quads",
	".nt":          "application/n-triples",
	".odt":         "application/vnd.oasis.opendocument.text",
	".opus":        "audio/opus",
	".pdf":         "application/pdf",
	".pl":          "text/plain",
	".png":         "image/png",
	".pot":         "application/vnd.ms-powerpoint",
	".pps":         "application/vnd.ms-powerpoint",
	".ppt":         "application/vnd.ms-powerpoint",
	".pptx":        "application/vnd.openxmlformats-officedocument.presentationml.presentation",
	".ps":          "application/postscript",
	".py":          "text/x-python",
	".rdf":         "application/xml",
	".roff":        "application/x-troff",
	".rtf":         "application/rtf",
	".sgm":         "text/x-sgml",
	".sgml":        "text/x-sgml",
	".sh":          "application/x-sh",
	".srt":         "text/plain",
	".svg":         "image/svg+xml",
	".tar":         "application/x-tar",
	".tcl":         "application/x-tcl",
	".tex":         "application/x-tex",
	".tif":         "image/tiff",
	".tiff":        "image/tiff",
	".trig":        "application/trig",
	".tsv":         "text/tab-separated-values",
	".txt":         "text/plain",
	".vcf":         "text/x-vcard",
	".vtt":         "text/vtt",
	".wasm":        "application/wasm",
	".wav":         "audio/x-wav",
	".webm":        "video/webm",
	".webmanifest": "application/manifest+json",
	".webp":        "image/webp",
	".wsdl":        "application/xml",
	".xls":         "application/vnd.ms-excel",
	".xlsx":        "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
	".xml":         "text/xml",
	".xsl":         "application/xml",
	".zip":         "application/zip",
}

var (
	// shortened are extensions that stand for two.
	shortened = map[string]string{".svgz": ".svg.gz", ".tgz": ".tar.gz", ".taz": ".tar.gz", ".tz": ".tar.gz", ".tbz2": ".tar.bz2", ".txz": ".tar.xz"}
	// packings are the extensions of compression formats.
	packings = []string{".gz", ".bz2", ".xz", ".br", ".z"}
)

// MediaTypeOf guesses a media type by the name's extension; it ignores an extension of a compression format. A name that
// begins with its only dot has no extension.
func MediaTypeOf(name string) string {
	name = strings.TrimLeft(strings.ToLower(path.Base(name)), ".")
	extension := path.Ext(name)
	if long, ok := shortened[extension]; ok {
		name = strings.TrimSuffix(name, extension) + long
	}
	if slices.Contains(packings, path.Ext(name)) {
		name = strings.TrimSuffix(name, path.Ext(name))
	}
	return cmp.Or(mimeTypes[path.Ext(name)], "application/octet-stream")
}

package dialect

import (
	"cmp"
	"regexp"
	"strings"

	"github.com/evalfleet/evalfleet/pkg/chat"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
)

// audioFormats and videoFormats are the media types that the canonical form has formats for.
var (
	audioFormats = map[string]contentv1.AudioFormat{
		"audio/wav": contentv1.AudioFormat_AUDIO_FORMAT_WAV, "audio/x-wav": contentv1.AudioFormat_AUDIO_FORMAT_WAV,
		"audio/mpeg": contentv1.AudioFormat_AUDIO_FORMAT_MP3, "audio/mp3": contentv1.AudioFormat_AUDIO_FORMAT_MP3,
	}
	videoFormats = map[string]contentv1.VideoFormat{
		"video/mp4": contentv1.VideoFormat_VIDEO_FORMAT_MP4, "video/mpeg": contentv1.VideoFormat_VIDEO_FORMAT_MPEG,
		"video/quicktime": contentv1.VideoFormat_VIDEO_FORMAT_MOV, "video/mov": contentv1.VideoFormat_VIDEO_FORMAT_MOV,
	}
)

// extensions are those of files whose media types name none.
var extensions = map[string]string{
	"text/plain": ".txt", "text/markdown": ".md", "application/msword": ".doc",
	"application/vnd.openxmlformats-officedocument.wordprocessingml.document":   ".docx",
	"application/vnd.openxmlformats-officedocument.spreadsheetml.sheet":         ".xlsx",
	"application/vnd.openxmlformats-officedocument.presentationml.presentation": ".pptx",
}

// extension matches the end of a file's name that says what it is, and subtype a media type that says it too.
var (
	extension = regexp.MustCompile(`\.[A-Za-z][A-Za-z0-9]{0,7}$`)
	subtype   = regexp.MustCompile(`^[a-z]+/([a-z0-9]{1,8})$`)
)

// FileName is the name of a document for vendors that know a file's kind by the end of its name: its own, with the end
// that its media type has if it has none; `document` if it has no name.
func FileName(document *contentv1.Document) string {
	name := cmp.Or(document.GetFilename(), "document")
	if extension.MatchString(name) {
		return name
	}
	mediaType, _, _ := SplitDataURI(document.GetMedia().GetUri())
	mediaType = cmp.Or(mediaType, document.GetMimeType())
	if known := extensions[mediaType]; known != "" {
		return name + known
	}
	if match := subtype.FindStringSubmatch(mediaType); match != nil {
		return name + "." + match[1]
	}
	return name
}

// MediaPart returns the part of media with a media type: a document, where the type has no kind of its own.
func MediaPart(mediaType, uri string) *contentv1.Content {
	source := &contentv1.Media{Source: &contentv1.Media_Uri{Uri: uri}}
	if strings.HasPrefix(mediaType, "image/") {
		return chat.ImagePart(uri)
	}
	if format, ok := audioFormats[mediaType]; ok {
		return &contentv1.Content{Part: &contentv1.Content_Audio{Audio: &contentv1.Audio{Media: source, Format: format}}}
	}
	if format, ok := videoFormats[mediaType]; ok {
		return &contentv1.Content{Part: &contentv1.Content_Video{Video: &contentv1.Video{Media: source, Format: format}}}
	}
	return chat.DocumentPart(uri, mediaType, "")
}

package dialect

import (
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

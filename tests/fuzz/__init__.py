"""Files that anybody may have altered: what is read, how it is altered, and a harness that looks for crashes."""

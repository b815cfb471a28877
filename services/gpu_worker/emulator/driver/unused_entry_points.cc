// What RADV imports of libdrm for displays and for other processes.  All of it fails: the emulated
// device has neither.
extern "C" {

#define TANDEM_FAILS(name) \
  int name() { return -1; }
#define TANDEM_NOTHING(name) \
  void* name() { return nullptr; }

TANDEM_FAILS(drmAuthMagic)
TANDEM_FAILS(drmCrtcGetSequence)
TANDEM_FAILS(drmCrtcQueueSequence)
TANDEM_FAILS(drmHandleEvent)
TANDEM_FAILS(drmModeAddFB2)
TANDEM_FAILS(drmModeConnectorSetProperty)
TANDEM_FAILS(drmModeFreeConnector)
TANDEM_FAILS(drmModeFreeCrtc)
TANDEM_FAILS(drmModeFreeEncoder)
TANDEM_FAILS(drmModeFreeObjectProperties)
TANDEM_FAILS(drmModeFreeProperty)
TANDEM_FAILS(drmModeFreeResources)
TANDEM_FAILS(drmModeObjectSetProperty)
TANDEM_FAILS(drmModePageFlip)
TANDEM_FAILS(drmModeRmFB)
TANDEM_FAILS(drmModeSetCrtc)
TANDEM_FAILS(drmModeSetCursor)
TANDEM_FAILS(drmPrimeFDToHandle)
TANDEM_FAILS(drmSyncobjExportSyncFile)
TANDEM_FAILS(drmSyncobjFDToHandle)
TANDEM_FAILS(drmSyncobjHandleToFD)
TANDEM_FAILS(drmSyncobjImportSyncFile)
TANDEM_NOTHING(drmGetFormatModifierName)
TANDEM_NOTHING(drmModeGetConnector)
TANDEM_NOTHING(drmModeGetConnectorCurrent)
TANDEM_NOTHING(drmModeGetCrtc)
TANDEM_NOTHING(drmModeGetEncoder)
TANDEM_NOTHING(drmModeGetProperty)
TANDEM_NOTHING(drmModeGetResources)
TANDEM_NOTHING(drmModeObjectGetProperties)

#undef TANDEM_FAILS
#undef TANDEM_NOTHING

}  // extern "C"
